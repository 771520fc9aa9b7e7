"""`server.inbox()`: what the runs of a session ask its person, and the answers to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

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


class Inbox(Sequence[Question]):
    """What is asked at this moment, oldest first: `inbox[0]`, or `inbox["node"]` for the oldest of a node."""

    def __init__(self, link: Link, session_id: str) -> None:
        with link.reader.snapshot() as connection:
            self._questions = [
                _question(connection, link, row) for row in connection.execute(_ASKED, (session_id,)).fetchall()
            ]

    def __len__(self) -> int:
        return len(self._questions)

    @overload
    def __getitem__(self, which: int | str) -> Question: ...
    @overload
    def __getitem__(self, which: slice) -> list[Question]: ...
    def __getitem__(self, which: int | str | slice) -> Question | list[Question]:
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


def _line(question: Question) -> str:
    return f"  {question.node_id} of {wording.one_line(question.workflow, 40)}: {_said(question)}"


def _said(question: Question) -> str:
    choices = "" if question.choices is None else f" ({' | '.join(question.choices)})"
    return wording.one_line(question.prompt, 200) + choices
