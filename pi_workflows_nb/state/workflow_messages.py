"""What a session is shown, in order, and the turns its agent takes at it.

A message is `pending` until it was shown (`sent`) or is of no use any more (`cancelled`). Whoever speaks for the
session takes the first one that may be shown; taking it sends it and opens its turn, in one transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from ..wire import identities
from ..wire.errors import ConflictError, NotFoundError
from . import blobs
from .runs import RunRow

CONTENT: Final = "pi-workflows.workflow-message-content.v1"

_NEXT: Final = """
    SELECT m.workflow_message_id, m.run_id, m.source_id FROM workflow_messages m
    WHERE m.target_session_id = ? AND m.status = 'pending' AND m.kind = 'step' AND NOT EXISTS (
        SELECT 1 FROM interactive_submissions s WHERE s.request_id = m.source_id AND s.outcome = 'validating')
    ORDER BY m.order_number LIMIT 1
"""
_TURN: Final = """
    SELECT t.workflow_turn_id, t.run_id, t.state, t.stop_reason, m.kind, m.source_id
    FROM workflow_turns t JOIN workflow_messages m USING (workflow_message_id) WHERE t.workflow_turn_id = ?
"""
_OPEN: Final = (
    "SELECT workflow_turn_id FROM workflow_turns WHERE target_session_id = ? AND state = 'started'"
    " ORDER BY started_at, rowid"
)


@dataclass(frozen=True)
class Message:
    """A message that waits to be shown; the source of a step is its request."""

    message_id: str
    run_id: str
    source_id: str


@dataclass(frozen=True)
class Turn:
    """One try of a session's agent; `kind` and `source_id` are those of the message it is about."""

    turn_id: str
    run_id: str
    state: str
    stop_reason: str | None
    kind: str
    source_id: str


def create(
    connection: sqlite3.Connection, run: RunRow, kind: str, source_id: str, key: str, content: dict[str, Any], now: int
) -> str:
    """Put a message at the end of what the run's session is shown, and give its id; the same again changes nothing.

    `ConflictError` when the key stands for another content.
    """
    message_id = identities.workflow_message_id(kind, source_id, key)
    digest = blobs.put_json(connection, {**content, "schema": CONTENT}, now)
    known = connection.execute(
        "SELECT content_hash FROM workflow_messages WHERE workflow_message_id = ?", (message_id,)
    ).fetchone()
    if known is not None:
        if known[0] != digest:
            raise ConflictError(f"message {message_id} stands for another content")
        return message_id
    connection.execute(
        "INSERT INTO workflow_messages(workflow_message_id, run_id, target_session_id, kind, source_id, content_hash,"
        " order_number, status, created_at, updated_at) SELECT ?, ?, ?, ?, ?, ?, coalesce(max(order_number), 0) + 1,"
        " 'pending', ?, ? FROM workflow_messages WHERE target_session_id = ?",
        (message_id, run.run_id, run.session_id, kind, source_id, digest, now, now, run.session_id),
    )
    return message_id


def next_of(connection: sqlite3.Connection, session_id: str) -> Message | None:
    """The first message of a session that may be shown now, or None."""
    row = connection.execute(_NEXT, (session_id,)).fetchone()
    return None if row is None else Message(*row)


def take(connection: sqlite3.Connection, message: Message, session_id: str, entry_id: str, now: int) -> str:
    """The message is shown, as the entry of that id: it is sent, and a turn at it begins, whose id is given."""
    connection.execute(
        "UPDATE workflow_messages SET status = 'sent', pi_session_entry_id = ?, updated_at = ?"
        " WHERE workflow_message_id = ?",
        (entry_id, now, message.message_id),
    )
    turn_id = f"workflow-turn-{identities.new_id()}"
    connection.execute(
        "INSERT INTO workflow_turns(workflow_turn_id, workflow_message_id, run_id, target_session_id, state,"
        " started_at) VALUES (?, ?, ?, ?, 'started', ?)",
        (turn_id, message.message_id, message.run_id, session_id, now),
    )
    return turn_id


def turn(connection: sqlite3.Connection, turn_id: str) -> Turn:
    """A turn. `NotFoundError` where there is none of that id."""
    row = connection.execute(_TURN, (turn_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"no turn {turn_id!r} in this state file")
    return Turn(*row)


def open_turns(connection: sqlite3.Connection, session_id: str) -> list[str]:
    """The turns of a session that have not ended, oldest first."""
    return [turn_id for (turn_id,) in connection.execute(_OPEN, (session_id,))]


def close_turn(connection: sqlite3.Connection, turn_id: str, reason: str, now: int) -> None:
    """The turn is over."""
    connection.execute(
        "UPDATE workflow_turns SET state = 'ended', stop_reason = ?, ended_at = max(started_at, ?)"
        " WHERE workflow_turn_id = ?",
        (reason, now, turn_id),
    )


def cancel_of(connection: sqlite3.Connection, source_id: str, now: int) -> None:
    """What is pending of a source is not shown any more."""
    connection.execute(
        "UPDATE workflow_messages SET status = 'cancelled', updated_at = ? WHERE source_id = ? AND status = 'pending'",
        (now, source_id),
    )
