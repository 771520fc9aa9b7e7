"""What the nodes of a run ask its session, and what was submitted in answer."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..wire.errors import NotFoundError
from . import blobs, runs, workflow_messages
from .runs import RunRow

Reason = Literal["initial", "reminder", "resumed"]

_REQUEST: Final = """
    SELECT i.request_id, i.run_id, i.status, i.revision, i.unproductive_turn_ends, i.contract_hash, a.node_id
    FROM interactive_requests i JOIN node_attempts a USING (attempt_id) WHERE i.request_id = ?
"""
_SUBMISSION: Final = (
    "SELECT submission_id, request_id, outcome, payload_hash, receipt_hash FROM interactive_submissions WHERE"
)
_OF_RUN: Final = "SELECT request_id FROM interactive_requests WHERE attempt_id = ? AND status = 'pending'"


@dataclass(frozen=True)
class Request:
    """A question to a session."""

    request_id: str
    run_id: str
    status: str
    revision: int
    unproductive_turn_ends: int
    contract: bytes
    node_id: str


@dataclass(frozen=True)
class Submission:
    """An answer to one; `payload` and `receipt` are digests."""

    submission_id: str
    request_id: str
    outcome: str
    payload: bytes
    receipt: bytes | None


def read(connection: sqlite3.Connection, request_id: str) -> Request:
    """A request. `NotFoundError` where there is none of that id."""
    row = connection.execute(_REQUEST, (request_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"no request {request_id!r} in this state file; server.inbox() lists what is asked")
    return Request(*row)


def submission(connection: sqlite3.Connection, submission_id: str) -> Submission:
    """A submission. `NotFoundError` where there is none of that id."""
    row = connection.execute(f"{_SUBMISSION} submission_id = ?", (submission_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"no submission {submission_id!r} in this state file")
    return Submission(*row)


def submission_under(connection: sqlite3.Connection, request_id: str, key: str) -> Submission | None:
    """What was submitted under a key before."""
    row = connection.execute(f"{_SUBMISSION} request_id = ? AND idempotency_key = ?", (request_id, key)).fetchone()
    return None if row is None else Submission(*row)


def validating(connection: sqlite3.Connection, request_id: str | None = None) -> list[Submission]:
    """The submissions that are looked at just now, to one request or to all."""
    rows = connection.execute(
        f"{_SUBMISSION} outcome = 'validating' AND (?1 IS NULL OR request_id = ?1) ORDER BY submitted_at", (request_id,)
    )
    return [Submission(*row) for row in rows]


def refusal(connection: sqlite3.Connection, submission: Submission) -> str:
    """Why a submission was rejected."""
    assert submission.receipt is not None
    return str(blobs.read_json(connection, submission.receipt).get("error"))


def settle_submission(
    connection: sqlite3.Connection, submission_id: str, outcome: str, receipt: dict[str, Any], now: int
) -> None:
    """Write what became of a submission."""
    connection.execute(
        "UPDATE interactive_submissions SET outcome = ?, receipt_hash = ? WHERE submission_id = ?",
        (outcome, blobs.put_json(connection, {"status": outcome, **receipt}, now), submission_id),
    )


def reject_validating(connection: sqlite3.Connection, request_id: str, reason: str, now: int) -> None:
    """What is looked at just now is refused; whoever looks at it finds that out."""
    for one in validating(connection, request_id):
        settle_submission(connection, one.submission_id, "rejected", {"error": reason}, now)


def pending_of(connection: sqlite3.Connection, attempt_id: str) -> str | None:
    """The id of the request that an attempt waits for."""
    row = connection.execute(_OF_RUN, (attempt_id,)).fetchone()
    return None if row is None else str(row[0])


def show(connection: sqlite3.Connection, run: RunRow, request: Request, reason: Reason, now: int) -> None:
    """Have the session shown a request, for this reason; at most one message of it waits to be shown."""
    contract = blobs.read_json(connection, request.contract)
    prompt = contract.get("prompt") if isinstance(contract, dict) else None
    if not isinstance(prompt, str):
        prompt = f"node {request.node_id} asks for an answer"  # a contract of other software
    if reason == "reminder":
        said = _last_refusal(connection, request.request_id)
        prompt += f"\n\nThe last answer was refused: {said}" if said else "\n\nNo answer was submitted yet."
    content = {
        "content": prompt,
        "customType": "workflow-step",
        "details": {
            "nodeId": request.node_id,
            "reason": reason,
            "requestId": request.request_id,
            "runId": request.run_id,
        },
        "display": True,
        "triggerTurn": True,
    }
    key = f"{request.revision}:{reason}"
    workflow_messages.create(connection, run, "step", request.request_id, key, content, now)


def ask_again(connection: sqlite3.Connection, request_id: str, reason: Reason, now: int) -> None:
    """Have a pending request shown once more, unless a message of it waits already or its turn goes on."""
    request = read(connection, request_id)
    busy = connection.execute(
        "SELECT 1 FROM workflow_messages m LEFT JOIN workflow_turns t USING (workflow_message_id)"
        " WHERE m.source_id = ? AND m.kind = 'step' AND (m.status = 'pending' OR t.state = 'started')",
        (request_id,),
    ).fetchone()
    if busy is not None or request.status != "pending":
        return
    connection.execute(
        "UPDATE interactive_requests SET revision = revision + 1, updated_at = ? WHERE request_id = ?",
        (now, request_id),
    )
    show(connection, runs.read(connection, request.run_id), read(connection, request_id), reason, now)


def _last_refusal(connection: sqlite3.Connection, request_id: str) -> str | None:
    row = connection.execute(
        f"{_SUBMISSION} request_id = ? AND outcome = 'rejected' ORDER BY submitted_at DESC, rowid DESC LIMIT 1",
        (request_id,),
    ).fetchone()
    return None if row is None else refusal(connection, Submission(*row))
