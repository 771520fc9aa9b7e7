"""A store in memory, for direct runs and for trying workflows out.

It keeps the same record of a run as a file does, so a run can be stopped and gone on with, and effects are adopted
under their keys, as long as the object lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import EffectRequestConflictError, NotFoundError
from pi_workflows_nb.wire.identities import effect_id_of_run, new_run_id
from pi_workflows_nb.workflows.store import (
    EffectReservation,
    NodeFinished,
    NodeStarted,
    ProposedTransition,
    Recovery,
    RunState,
    Settlement,
)

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow


@dataclass(slots=True)
class LocalEffect:
    """A recorded effect: `status` is pending, applying, applied, rejected or ambiguous; `result` its JSON value."""

    effect_id: str
    key: str
    recovery: Recovery
    request: bytes
    status: str = "applying"
    attempts: int = 1
    result: Any = None
    external_ref: str | None = None


class LocalStore:
    """One run at a time, in memory.

    `transitions` lists what was proposed, `updates` what was published as (attempt id, type, key, data), `effects` the
    recorded effects by id. A run that has to wait for a moment waits in place.
    """

    parks = False

    def __init__(self) -> None:
        self.transitions: list[ProposedTransition] = []
        self.updates: list[tuple[str, str, str, Any]] = []
        self.effects: dict[str, LocalEffect] = {}
        self._state: RunState | None = None
        self._running: NodeStarted | None = None

    def begin(self, workflow: Workflow, input: Any) -> None:
        """Take a new run in: its input is validated, its title made, and what the store held before is forgotten."""
        from pi_workflows_nb.workflows.inputs import make_title, normalize_input
        from pi_workflows_nb.workflows.validation import validate

        validate(workflow)
        normal = normalize_input(workflow, input)
        self.transitions.clear()
        self.updates.clear()
        self.effects.clear()
        self._running = None
        self._state = {
            "runId": new_run_id(workflow.name, time_ns() // 1_000_000),
            "workflowName": workflow.name,
            "title": make_title(workflow, normal),
            "input": normal,
            "steps": [],
            "passages": [],
            "attemptCounts": {},
            "pending": None,
        }

    def answer(self, value: Any) -> None:
        """Give the node, at which the run waits, its answer (JSON) or its event; resuming goes on behind it."""
        steps, started = self._known()["steps"], self._running
        if started is not None:
            now = max(time_ns() // 1_000_000, started.started_at)
            self._end_attempt(started, NodeFinished(started.node_id, started.attempt_id, "ok", b"null", None, now))
        steps[-1]["output"] = canonical_json.decode(canonical_json.encode(value))

    def initialize(self) -> RunState:
        """The run that `begin` took in."""
        return self._copy()

    def prepare_resume(self) -> RunState:
        """The run as the last proposal left it; what an attempt that never ended had begun is uncertain."""
        if self._running is not None:
            pending = self._known()["pending"]
            tries = pending["tries"] if pending and pending["nodeId"] == self._running.node_id else 0
            self._known()["pending"] = {"nodeId": self._running.node_id, "tries": tries, "failedAt": None}
            self._running = None
            for effect in self.effects.values():
                if effect.status == "applying":
                    effect.status = "pending" if effect.recovery == "idempotent" else "ambiguous"
        return self._copy()

    def propose(self, transition: ProposedTransition) -> None:
        """Keep a transition."""
        self.transitions.append(transition)
        state, finished = self._known(), transition.finished
        if finished is not None and self._running is not None:
            self._end_attempt(self._running, finished)
        for passage in transition.through:
            state["passages"].append(
                {
                    "event": passage.event,
                    "mount": passage.mount,
                    "steps": len(state["steps"]),
                    "value": canonical_json.decode(passage.value),
                }
            )
        if transition.started is not None:
            self._running = transition.started
            state["attemptCounts"][transition.started.node_id] = transition.started.number

    def _end_attempt(self, started: NodeStarted, finished: NodeFinished) -> None:
        state, self._running = self._known(), None
        output = None if finished.output is None else canonical_json.decode(finished.output)
        if finished.step:
            state["pending"] = None
            state["steps"].append(
                {
                    "index": len(state["steps"]),
                    "nodeId": finished.node_id,
                    "attemptId": finished.attempt_id,
                    "attemptNumber": started.number,
                    "nodeType": started.node_type,
                    "outcome": finished.outcome,
                    "output": output,
                    "error": finished.error,
                    "startedAt": started.started_at,
                    "finishedAt": finished.finished_at,
                }
            )
        else:
            tries = (state["pending"] or {"tries": 0})["tries"] + 1
            state["pending"] = {"nodeId": finished.node_id, "tries": tries, "failedAt": finished.finished_at}
        if finished.effect is not None:
            self._settle_effect(finished.effect, output)

    def settle(self) -> None:
        """Nothing to wait for."""

    def reserve_effect(
        self, attempt_id: str, effect_type: str, key: str, recovery: Recovery, request: bytes
    ) -> EffectReservation:
        """Record an effect or adopt the one that stands under the key."""
        del attempt_id
        effect_id = effect_id_of_run(self._known()["runId"], effect_type, key)
        effect = self.effects.get(effect_id)
        if effect is None:
            self.effects[effect_id] = LocalEffect(effect_id, key, recovery, request)
            return EffectReservation(effect_id, "apply")
        if effect.request != request:
            raise EffectRequestConflictError(
                f"the effect {effect_type!r} was recorded under its key with another request; the request of an action "
                "must depend on the run's input and outputs alone"
            )
        if effect.status == "applied":
            return EffectReservation(effect_id, "applied", effect.result, effect.attempts)
        if effect.status != "pending" and not (effect.status == "ambiguous" and recovery == "idempotent"):
            return EffectReservation(effect_id, "ambiguous", None, effect.attempts)
        effect.status = "applying"
        effect.attempts += 1
        return EffectReservation(effect_id, "apply", None, effect.attempts)

    def publish_update(self, attempt_id: str, update_type: str, key: str, data: bytes) -> None:
        """Keep an update."""
        self.updates.append((attempt_id, update_type, key, canonical_json.decode(data)))

    def attend(self, wake: Callable[[], None]) -> None:
        """Nothing here ever needs attention."""

    def _settle_effect(self, settlement: Settlement, output: Any) -> None:
        effect = self.effects[settlement.effect_id]
        effect.status = "pending" if settlement.outcome == "retry" else settlement.outcome
        effect.external_ref = settlement.external_ref
        effect.result = output if settlement.outcome == "applied" else None

    def _copy(self) -> RunState:
        state: RunState = canonical_json.decode(canonical_json.encode(self._known()))
        return state

    def _known(self) -> RunState:
        if self._state is None:
            raise NotFoundError("this store holds no run; WorkflowEngine.run(workflow, input) begins one")
        return self._state
