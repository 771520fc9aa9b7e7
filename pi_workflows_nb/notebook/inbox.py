"""`server.inbox()`: what the runs of a session ask its person, and the answers to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from pi_workflows_nb.state import blobs
from pi_workflows_nb.wire.errors import NotFoundError

from . import representations, wording

if TYPE_CHECKING:
    from .link import Link

_ASKED: Final = """
    SELECT i.request_id, i.run_id, d.workflow_name, a.node_id, i.contract_hash, i.unproductive_turn_ends,
           (SELECT s.receipt_hash FROM interactive_submissions s WHERE s.request_id = i.request_id
              AND s.outcome = 'rejected' ORDER BY s.submitted_at DESC, s.rowid DESC LIMIT 1)
    FROM interactive_requests i JOIN node_attempts a USING (attempt_id) JOIN runs r ON r.run_id = i.run_id
    JOIN workflow_definitions d USING (definition_digest)
    WHERE i.target_session_id = ? AND i.status = 'pending' AND r.paused = 0 ORDER BY i.created_at, i.rowid
"""


_DECISIONS: Final = """
    SELECT h.decision_id, h.run_id, d.workflow_name, a.node_id, h.title, h.presentation_hash, h.choices_hash,
           h.deadline_at, h.default_response_hash
    FROM human_decisions h JOIN node_attempts a USING (attempt_id) JOIN runs r ON r.run_id = h.run_id
    JOIN run_bindings b ON b.run_id = h.run_id JOIN workflow_definitions d USING (definition_digest)
    LEFT JOIN human_decision_resolutions x USING (decision_id)
    WHERE b.origin_session_id = ? AND x.decision_id IS NULL AND r.paused = 0 ORDER BY h.created_at, h.rowid
"""

answering: Final[ContextVar[bool]] = ContextVar("answering", default=False)
"""Whether what runs here is the agent of a session: it answers no decision of a person."""


@dataclass(frozen=True)
class PersonDecision:
    """A decision that only a person takes: what is decided, the choices, and what counts after the deadline."""

    request_id: str
    run_id: str
    workflow: str
    node_id: str
    title: str
    presentation: dict[str, Any]
    choices: dict[str, Any]
    deadline: dt.datetime | None
    default: dict[str, Any] | None
    _link: Link

    @property
    def prompt(self) -> str:
        """The summary of what is decided."""
        return str(self.presentation["summary"])

    def answer(self, choice: Any, input: str | None = None) -> None:
        """Take it: the name of a choice, and the text that goes with it where it needs one.

        `WorkflowInputError`, which says what to change, for what is no answer; `ConflictError` when it was taken
        already, by whoever or by its deadline, its run is paused, or an agent tries. Also `ServerStoppedError`.
        """
        response = {"choice": choice, "input": input} if isinstance(choice, str) else choice
        payload = {"channel": "notebook", "decisionId": self.request_id, "response": response}
        if answering.get():
            payload["actor"] = "agent"
        self._link.ask("decision.answer", payload, run_id=self.run_id)

    def _facts(self) -> list[tuple[str, Any]]:
        facts: list[tuple[str, Any]] = [("run", self.run_id), ("node", self.node_id), ("asked", self.prompt)]
        facts += [(block["type"], _block(block)) for block in self.presentation["blocks"]]
        for name, one in self.choices.items():
            wanted = one.get("input")
            facts.append((name, one["label"] + (f"; needs {wanted['name']}: {wanted['prompt']}" if wanted else "")))
        if self.deadline is not None:
            counts = (self.default or {}).get("choice")
            facts.append(("until", f"{self.deadline:%Y-%m-%d %H:%M:%S %Z}, then {counts} counts"))
        return facts

    def __repr__(self) -> str:
        return representations.facts_text(f"{self.workflow}: {self.title}", self._facts())

    def _repr_html_(self) -> str:
        return representations.facts_html(f"{self.workflow}: {self.title}", self._facts())


@dataclass(frozen=True)
class Question:
    """What a node asks: the prompt, the shape of an answer, and why the last one would not do."""

    request_id: str
    run_id: str
    workflow: str
    node_id: str
    prompt: str
    expected_output: str | None
    choices: list[str] | None
    turns: int
    refused: str | None
    _link: Link

    def answer(self, value: Any) -> None:
        """Answer it, with a JSON value; the run goes on with what its node makes of it.

        `WorkflowInputError` when the node refuses the value, which says what it wants; the question stays.
        `ConflictError` when it was answered meanwhile or its run is paused. Also `NotJsonError`, `ServerStoppedError`.
        """
        payload = {"requestId": self.request_id, "value": self._link.value(value)}
        self._link.ask("interaction.submit", payload, run_id=self.run_id)

    def _facts(self) -> list[tuple[str, Any]]:
        facts: list[tuple[str, Any]] = [("run", self.run_id), ("node", self.node_id), ("prompt", self.prompt)]
        if self.choices is not None:
            facts.append(("choices", ", ".join(self.choices)))
        if self.expected_output is not None:
            facts.append(("answer", self.expected_output))
        if self.refused is not None:
            facts.append(("last answer", self.refused))
        return facts

    def __repr__(self) -> str:
        return representations.facts_text(f"{self.workflow} asks", self._facts())

    def _repr_html_(self) -> str:
        return representations.facts_html(f"{self.workflow} asks", self._facts())


Item: TypeAlias = Question | PersonDecision


class Inbox(Sequence[Item]):
    """What is asked at this moment, questions before decisions, oldest first.

    `inbox[0]` is the first, `inbox["node"]` the oldest of a node.
    """

    def __init__(self, link: Link, session_id: str) -> None:
        with link.reader.snapshot() as connection:
            self._questions: list[Item] = [
                _question(connection, link, row) for row in connection.execute(_ASKED, (session_id,)).fetchall()
            ]
            self._questions += [
                _decision(connection, link, row) for row in connection.execute(_DECISIONS, (session_id,)).fetchall()
            ]

    def __len__(self) -> int:
        return len(self._questions)

    @overload
    def __getitem__(self, which: int | str) -> Item: ...
    @overload
    def __getitem__(self, which: slice) -> list[Item]: ...
    def __getitem__(self, which: int | str | slice) -> Item | list[Item]:
        """The question at a place, of a node, or of a request or run id. `NotFoundError` where there is none."""
        if isinstance(which, slice):
            return self._questions[which]
        if isinstance(which, int):
            if -len(self) <= which < len(self):
                return self._questions[which]
            raise IndexError(f"the inbox holds {wording.count(len(self), 'question')}")
        for question in self._questions:
            if which in (question.node_id, question.request_id, question.run_id):
                return question
        raise NotFoundError(f"nothing in the inbox is of node, run or request {which!r}")

    def __repr__(self) -> str:
        if not self._questions:
            return "inbox: nothing is asked"
        return "\n".join([f"inbox: {wording.count(len(self), 'question')}", *map(_line, self._questions)])

    def _repr_html_(self) -> str:
        facts = [(f"[{place}] {one.node_id}", _said(one)) for place, one in enumerate(self._questions)]
        return representations.facts_html("inbox", facts, None if facts else "empty")


def _question(connection: Any, link: Link, row: tuple[Any, ...]) -> Question:
    request_id, run_id, workflow, node_id, contract, turns, receipt = row
    asked = blobs.read_json(connection, contract)
    refused = None if receipt is None else blobs.read_json(connection, receipt).get("error")
    return Question(
        request_id, run_id, workflow, node_id, asked.get("prompt") or "", asked.get("expectedOutput"),
        asked.get("choices"), turns, refused, link,
    )  # fmt: skip


def _decision(connection: Any, link: Link, row: tuple[Any, ...]) -> PersonDecision:
    decision_id, run_id, workflow, node_id, title, presentation, choices, deadline, default = row
    return PersonDecision(
        decision_id, run_id, workflow, node_id, title, blobs.read_json(connection, presentation),
        blobs.read_json(connection, choices),
        None if deadline is None else dt.datetime.fromtimestamp(deadline / 1000, dt.UTC),
        None if default is None else blobs.read_json(connection, default), link,
    )  # fmt: skip


def _block(block: dict[str, Any]) -> str:
    return "; ".join(str(value) for name, value in block.items() if name != "type")


def _line(question: Item) -> str:
    return f"  {question.node_id} of {wording.one_line(question.workflow, 40)}: {_said(question)}"


def _said(question: Item) -> str:
    choices = "" if question.choices is None else f" ({' | '.join(question.choices)})"
    return wording.one_line(question.prompt, 200) + choices
