"""What a run has behind it, as the engine and the callbacks see it.

Values are kept as the canonical JSON that was proposed, and every callback gets copies of its own: whatever it does to
them, the next callback sees what the file holds, before a crash as after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import NotJsonError
from pi_workflows_nb.workflows.store import Outcome, Passage, RunState
from pi_workflows_nb.workflows.values import to_json

_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_UNSET: Final = object()


def to_canonical(value: Any) -> bytes:
    """Give the canonical JSON of what a callback returned; numpy and pandas scalars count as JSON.

    Anything else raises `NotJsonError`, which names the place and says how to keep such a value.
    """
    try:
        return canonical_json.encode(value)
    except NotJsonError:
        return canonical_json.encode(to_json(value))


class StoredValue:
    """One JSON value, held as text."""

    __slots__ = ("_json", "_scalar", "_value")

    def __init__(self, json: bytes | None, value: Any = _UNSET) -> None:
        self._json = json
        self._value = value
        self._scalar: Any = _UNSET

    @property
    def json(self) -> bytes:
        """The canonical JSON."""
        if self._json is None:
            self._json = canonical_json.encode(self._value)
            self._value = _UNSET
        return self._json

    def copy(self) -> Any:
        """A copy that belongs to the caller."""
        if self._scalar is not _UNSET:
            return self._scalar
        value = canonical_json.decode(self.json)
        if type(value) in _SCALARS:
            self._scalar = value
        return value


def stored(value: Any) -> StoredValue:
    """A value of a run's state, which a store may have as text already."""
    return value if isinstance(value, StoredValue) else StoredValue(None, value)


@dataclass(slots=True)
class StepRecord:
    """The full result of one step; times in milliseconds since the epoch."""

    index: int
    node_id: str
    attempt_id: str
    attempt_number: int
    node_type: str
    outcome: Outcome
    output: StoredValue | None
    error: str | None
    started_at: int
    finished_at: int

    def record(self) -> dict[str, Any]:
        """The record as JSON, with a copy of the output."""
        return {
            "index": self.index,
            "nodeId": self.node_id,
            "attemptId": self.attempt_id,
            "attemptNumber": self.attempt_number,
            "nodeType": self.node_type,
            "outcome": self.outcome,
            "output": None if self.output is None else self.output.copy(),
            "error": self.error,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
        }


class Invocation:
    """What one entry into a mounted workflow has behind it, or the run itself; nodes by their names in that workflow.

    `count` is the number of its steps, those of workflows mounted in it included.
    """

    __slots__ = ("count", "input", "outputs", "results", "steps")

    def __init__(self, input: StoredValue) -> None:
        self.input = input
        self.steps: list[StepRecord] = []
        self.outputs: dict[str, StoredValue] = {}
        self.results: dict[str, StepRecord] = {}
        self.count = 0

    def add(self, name: str, step: StepRecord) -> None:
        """Count a step: its output is the node's newest, or, after a failure, the node has none any more."""
        self.steps.append(step)
        self.results[name] = step
        if step.outcome == "ok" and step.output is not None:
            self.outputs[name] = step.output
        else:
            self.outputs.pop(name, None)


class History:
    """The steps of a run and what counts of them now.

    `invocations` holds, by mount path, the newest entry of each mounted workflow; that of the run itself stands under
    the empty path.
    """

    def __init__(self, state: RunState) -> None:
        self.run_id: str = state["runId"]
        self.workflow_name: str = state["workflowName"]
        self.title: str | None = state.get("title")
        self.invocations: dict[str, Invocation] = {"": Invocation(stored(state.get("input")))}
        self.steps: list[StepRecord] = []
        self.visits: dict[str, int] = {}
        self.attempt_counts: dict[str, int] = dict(state.get("attemptCounts") or {})
        self.last_passage: Passage | None = None
        passages = [_passed(passage) for passage in state.get("passages") or ()]
        for number, step in enumerate(state.get("steps") or ()):
            while passages and passages[0][0] <= number:
                self.pass_through(passages.pop(0)[1])
            self.add(_read(step))
        for _, passage in passages:
            self.pass_through(passage)

    def add(self, step: StepRecord) -> None:
        """Count a step, in its own workflow and in all that it is mounted in."""
        self.steps.append(step)
        self.last_passage = None
        self.visits[step.node_id] = self.visits.get(step.node_id, 0) + 1
        path, _, name = step.node_id.rpartition("/")
        self.invocations[path].add(name, step)
        self.invocations[""].count += 1
        while path:
            self.invocations[path].count += 1
            path = path.rpartition("/")[0]

    def pass_through(self, passage: Passage) -> None:
        """Enter a mounted workflow, with nothing behind it, or leave it, which is all that its parent sees of it."""
        self.last_passage = passage
        if passage.event == "include_entered":
            self.invocations[passage.mount] = Invocation(StoredValue(passage.value))
            return
        parent, _, name = passage.mount.rpartition("/")
        self.invocations[parent].outputs[name] = StoredValue(passage.value)

    def next_attempt(self, node_id: str) -> int:
        """Count an attempt and give its number, from 1."""
        number = self.attempt_counts.get(node_id, 0) + 1
        self.attempt_counts[node_id] = number
        return number

    def copy_outputs(self, path: str = "") -> dict[str, Any]:
        """The accepted outputs by node."""
        return {name: value.copy() for name, value in self.invocations[path].outputs.items()}

    def copy_results(self, path: str = "") -> dict[str, Any]:
        """The newest result record of each node."""
        return {name: step.record() for name, step in self.invocations[path].results.items()}

    def copy_state(self, path: str = "") -> dict[str, Any]:
        """Everything, as one JSON object."""
        invocation = self.invocations[path]
        return {
            "runId": self.run_id,
            "workflowName": self.workflow_name,
            "title": self.title,
            "input": invocation.input.copy(),
            "steps": [step.record() for step in (invocation.steps if path else self.steps)],
            "outputs": self.copy_outputs(path),
            "results": self.copy_results(path),
        }


def _passed(passage: dict[str, Any]) -> tuple[int, Passage]:
    return passage["steps"], Passage(passage["event"], passage["mount"], stored(passage["value"]).json)


def _read(step: dict[str, Any]) -> StepRecord:
    outcome: Outcome = step["outcome"]
    return StepRecord(
        index=step["index"],
        node_id=step["nodeId"],
        attempt_id=step["attemptId"],
        attempt_number=step["attemptNumber"],
        node_type=step["nodeType"],
        outcome=outcome,
        output=stored(step.get("output")) if outcome == "ok" else None,
        error=step.get("error"),
        started_at=step["startedAt"],
        finished_at=step["finishedAt"],
    )
