"""Prompts queued on a run for its session, for after it has ended.

They are delivered in order after a run that completed, and cancelled with one that did not (`transitions_dependents`).
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire import identities
from ..wire.errors import ConflictError, NotFoundError
from . import blobs, mutation, places, runs
from .mutation import ActorType
from .runs import RunRow

MOST_BYTES: Final = 64 << 10
REMOVED: Final = "removed before it was delivered"


def queue(
    connection: sqlite3.Connection,
    run: RunRow,
    request_id: str,
    prompt: str,
    actor: tuple[ActorType, str | None],
    source_type: str,
    now: int,
) -> str:
    """Queue a prompt, the last of its run, and give its id.

    `ConflictError` for a run that is over or has no session, and for a prompt that is blank or takes over 64 KiB.
    """
    size = len(identities.utf8(prompt))
    if not prompt.strip() or size > MOST_BYTES:
        raise ConflictError(
            "a follow-up is a text that is not blank"
            if size <= MOST_BYTES
            else f"the follow-up takes {size:,} bytes; it may take {MOST_BYTES:,}"
        )
    if run.status in runs.TERMINAL:
        raise ConflictError(f"run {run.run_id} is {run.status}: a follow-up is queued while it goes on")
    if run.session_id.startswith(places.HEADLESS):
        raise ConflictError(f"run {run.run_id} has no session that would get it: start it with mode='interactive'")
    follow_up_id = identities.follow_up_id(run.run_id, request_id)
    resource_id = mutation.create_aggregate(connection, "follow_up", follow_up_id, now, revision=0)
    (order,) = connection.execute(
        "SELECT coalesce(max(order_number), 0) + 1 FROM workflow_follow_ups WHERE run_id = ?", (run.run_id,)
    ).fetchone()
    connection.execute(
        "INSERT INTO workflow_follow_ups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', NULL, ?, ?)",
        (
            follow_up_id, resource_id, run.run_id, request_id, order, run.session_id, *actor, source_type,
            blobs.put_text(connection, prompt, now), now, now,
        ),
    )  # fmt: skip
    _event(connection, resource_id, "follow-up.queued", {"requestId": request_id, "runId": run.run_id}, actor, now)
    return follow_up_id


def remove(
    connection: sqlite3.Connection,
    run: RunRow,
    follow_up_id: str,
    actor: tuple[ActorType, str | None],
    source_type: str,
    now: int,
) -> None:
    """Take a queued prompt back: its author may, and a person. `ConflictError` for anybody else, or when it is gone."""
    row = connection.execute(
        "SELECT resource_id, status, actor_type, actor_id FROM workflow_follow_ups"
        " WHERE follow_up_id = ? AND run_id = ?",
        (follow_up_id, run.run_id),
    ).fetchone()
    if row is None:
        raise NotFoundError(f"no follow-up {follow_up_id!r} of run {run.run_id}")
    resource_id, status, *author = row
    if status != "queued":
        raise ConflictError(f"the follow-up is {status} already")
    if actor[0] != "human" and list(actor) != author:
        raise ConflictError("a follow-up is removed by who queued it, or by a person")
    connection.execute(
        "UPDATE workflow_follow_ups SET status = 'removed', reason_hash = ?, updated_at = ? WHERE follow_up_id = ?",
        (blobs.put_text(connection, REMOVED, now), now, follow_up_id),
    )
    _event(
        connection, resource_id, "follow-up.removed", {"followUpId": follow_up_id, "source": source_type}, actor, now
    )


def carry_on(connection: sqlite3.Connection, run_id: str, next_id: str, now: int) -> None:
    """Let what is queued on a run wait for the end of its continuation."""
    connection.execute(
        "UPDATE workflow_follow_ups SET run_id = ?, updated_at = ? WHERE run_id = ? AND status = 'queued'",
        (next_id, now, run_id),
    )


def _event(
    connection: sqlite3.Connection,
    resource_id: str,
    event_type: str,
    payload: dict[str, str],
    actor: tuple[ActorType, str | None],
    now: int,
) -> None:
    revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
    mutation.record_event(connection, resource_id, revision, event_type, *actor, payload, now)
