"""What hangs on a run and may not stay open when the run is over. Swept in the transaction of the run's end."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire import identities
from . import blobs, mutation, run_effects
from .mutation import ActorType
from .runs import RunRow

_UNRESOLVED: Final = (
    "SELECT d.decision_id, d.resource_id, d.request_digest FROM human_decisions d"
    " LEFT JOIN human_decision_resolutions x USING (decision_id) WHERE d.run_id = ? AND x.decision_id IS NULL"
)
# By way of the attempts, since requests have no index by run.
_ASKED: Final = (
    "SELECT request_id FROM node_attempts a JOIN interactive_requests i USING (attempt_id) WHERE a.run_id = ?"
    " AND (i.status = 'pending' OR EXISTS (SELECT 1 FROM interactive_submissions s"
    " WHERE s.request_id = i.request_id AND s.outcome = 'validating'))"
)
_FOLLOW_UPS: Final = "SELECT follow_up_id, resource_id FROM workflow_follow_ups WHERE run_id = ? AND status = 'queued'"


def sweep(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    error: bytes | None,
    now: int,
    actor: tuple[ActorType, str | None],
) -> None:
    """Close everything that the run, which has just ended with `status`, leaves open.

    `error` is the digest of the text that ended it. Notifications and terminal messages stay, and so do follow-ups of a
    run that completed: they are delivered after it.
    """
    reason = f"the run {'was cancelled' if status == 'cancelled' else status.replace('_', ' ')}"
    cancel_attempts(connection, run, error, now)
    run_effects.close_all(connection, run, now, actor=actor[1] or "workflow-control")
    cancel_decisions(connection, run, reason, now, actor)
    cancel_requests(connection, run, reason, now)
    end_turns(connection, run, now)
    cancel_messages(connection, run, ("step", "decision"), now)
    if status != "completed":
        cancel_follow_ups(connection, run, status, reason, now, actor)
        cancel_messages(connection, run, ("followUp",), now)


def cancel_attempts(connection: sqlite3.Connection, run: RunRow, error: bytes | None, now: int) -> None:
    """Attempts that have no end get one."""
    connection.execute(
        "UPDATE node_attempts SET status = 'cancelled', error_hash = coalesce(error_hash, ?),"
        " finished_at = coalesce(finished_at, ?), updated_at = ?"
        " WHERE run_id = ? AND status IN ('pending', 'running', 'waiting', 'interrupted')",
        (error, now, now, run.run_id),
    )


def cancel_decisions(
    connection: sqlite3.Connection, run: RunRow, reason: str, now: int, actor: tuple[ActorType, str | None]
) -> None:
    """Decisions that nobody has taken are resolved as cancelled: an answer comes too late from now on."""
    for decision_id, resource_id, digest in connection.execute(_UNRESOLVED, (run.run_id,)).fetchall():
        connection.execute(
            "INSERT INTO human_decision_resolutions(decision_id, outcome, provenance, reason, request_digest,"
            " resolved_at) VALUES (?, 'cancelled', 'explicit_cancel', ?, ?, ?)",
            (decision_id, reason, digest, now),
        )
        record = {
            "decisionId": decision_id,
            "outcome": "cancelled",
            "provenance": "explicit_cancel",
            "reason": reason,
            "requestDigest": identities.digest_text(digest),
            "resolvedAt": now,
        }
        _event(connection, resource_id, "decision.cancelled", record, now, actor)


def cancel_requests(connection: sqlite3.Connection, run: RunRow, reason: str, now: int) -> None:
    """Nothing is asked any more, and what is being validated is refused."""
    asked = connection.execute(_ASKED, (run.run_id,)).fetchall()
    if not asked:
        return
    receipt = blobs.put_json(connection, {"error": reason, "status": "rejected"}, now)
    connection.executemany(
        "UPDATE interactive_submissions SET outcome = 'rejected', receipt_hash = ?"
        " WHERE request_id = ? AND outcome = 'validating'",
        [(receipt, request_id) for (request_id,) in asked],
    )
    connection.executemany(
        "UPDATE interactive_requests SET status = 'cancelled', revision = revision + 1, updated_at = ?"
        " WHERE request_id = ? AND status = 'pending'",
        [(now, request_id) for (request_id,) in asked],
    )


def end_turns(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """Open turns have lost what they were about."""
    connection.execute(
        "UPDATE workflow_turns SET state = 'ended', stop_reason = 'lost', ended_at = ?"
        " WHERE run_id = ? AND state = 'started'",
        (now, run.run_id),
    )


def cancel_messages(connection: sqlite3.Connection, run: RunRow, kinds: tuple[str, ...], now: int) -> None:
    """Messages of these kinds that were not shown yet never are."""
    connection.execute(
        "UPDATE workflow_messages SET status = 'cancelled', updated_at = ? WHERE run_id = ? AND status = 'pending'"
        f" AND kind IN ({', '.join('?' * len(kinds))})",
        (now, run.run_id, *kinds),
    )


def cancel_follow_ups(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    reason: str,
    now: int,
    actor: tuple[ActorType, str | None],
) -> None:
    """Prompts that were queued for after the run are not delivered."""
    for follow_up_id, resource_id in connection.execute(_FOLLOW_UPS, (run.run_id,)).fetchall():
        connection.execute(
            "UPDATE workflow_follow_ups SET status = 'cancelled', reason_hash = ?, updated_at = ?"
            " WHERE follow_up_id = ?",
            (blobs.put_text(connection, reason, now), now, follow_up_id),
        )
        payload = {"reason": reason, "runId": run.run_id, "status": status}
        _event(connection, resource_id, "follow-up.cancelled", payload, now, actor)


def _event(
    connection: sqlite3.Connection,
    resource_id: str,
    event_type: str,
    payload: dict[str, Any],
    now: int,
    actor: tuple[ActorType, str | None],
) -> None:
    revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
    mutation.record_event(connection, resource_id, revision, event_type, actor[0], actor[1], payload, now)
