"""Sleeping, waiting, and what ends both.

running/running -> running/parked   sleep: due at a moment; the attempt stays open, no process is held
running/parked  -> (claimed)        wake: the attempt has ended well
running/running -> waiting/parked   wait: for an answer or an event, or until the event is late
waiting/parked  -> running/parked   expire_event: the attempt has timed out, and the run goes on from there
waiting/parked  -> running/starting begin_interaction_timeout: so has the attempt that asked a session
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire.errors import ConflictError
from ..wire.runner_messages import End
from . import blobs, mutation, places, waits
from .mutation import Claim
from .runs import RunRow
from .transitions_dependents import cancel_messages, cancel_requests, end_turns
from .transitions_record import SYSTEM, event, set_queue, set_run
from .waits import OpenWait

_ASKED: Final = (
    "SELECT attempt_id FROM interactive_requests WHERE request_id = ? AND run_id = ? AND status = 'pending'"
    " AND kind IN ('agent', 'assistant')"
)


def sleep(connection: sqlite3.Connection, run: RunRow, claim: Claim, given: End, now: int) -> None:
    """Park a run until a moment: the node under way sleeps, or, between two attempts, the next try is not due yet."""
    due_at = _over_at(given, now)
    _keep_open(connection, run, due_at, now)
    mutation.clear_lease(connection, run.resource_id)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "parked", now, available_at=due_at)
    event(connection, run, "run_sleeping", {"payload": {"dueAt": due_at}, "scope": "run"}, now, actor=SYSTEM)
    _parked(connection, run, claim, now)


def wait(connection: sqlite3.Connection, run: RunRow, claim: Claim, given: End, now: int) -> None:
    """Park a run until somebody answers; one that waits for an event, at most until a moment."""
    due_at = _over_at(given, now)
    _keep_open(connection, run, due_at, now)
    mutation.clear_lease(connection, run.resource_id)
    set_run(connection, run, "waiting", now, detail=given.detail)
    set_queue(connection, run, "parked", now, available_at=due_at)
    event(connection, run, "run_waiting", {"payload": {}, "scope": "run"}, now, actor=SYSTEM)
    _parked(connection, run, claim, now)


def wake(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """A run that is due has slept: the attempt, if it slept in one, has ended well."""
    asleep = waits.open_wait(connection, run)
    if asleep is not None:
        null = blobs.put_json_bytes(connection, b"null", now)
        close_wait(connection, run, asleep, "completed", now, output=null)


def expire_event(connection: sqlite3.Connection, run: RunRow, now: int) -> bool:
    """The event that a waiting run waits for has not come in time: it goes on, and its node has timed out.

    The caller knows that the wait is over, and that nobody alive holds the run. False, and nothing changed, for a run
    that waits for anything else.
    """
    wait = waits.open_wait(connection, run)
    if run.paused or wait is None or wait.due_at is None or waits.waits_for(connection, run) != "event":
        return False
    seconds = round((wait.due_at - wait.started_at) / 1000, 1)
    error = blobs.put_text(connection, f"node {wait.node_id!r}: no event came within {seconds:g} s", now)
    close_wait(connection, run, wait, "timed_out", now, error=error)
    mutation.clear_lease(connection, run.resource_id)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "parked", now, available_at=now)
    event(connection, run, "run.resumed", {"status": "parked"}, now, actor=SYSTEM)
    run.status, run.available_at, run.owner_id, run.expires_at = "running", now, None, None
    return True


def begin_interaction_timeout(
    connection: sqlite3.Connection, run: RunRow, claim: Claim, request_id: str, now: int
) -> bool:
    """The session that a waiting run asked has not answered in time: its node has timed out, and the run is executed.

    The caller holds the run and knows that the time is over. False, and nothing changed, while another run has the
    session's place. `ConflictError` unless this is what the run waits for; a decision has a default instead.
    """
    asked = connection.execute(_ASKED, (request_id, run.run_id)).fetchone()
    wait = waits.open_wait(connection, run)
    if run.status != "waiting" or run.paused or asked is None or wait is None or asked[0] != wait.attempt_id:
        raise ConflictError(f"run {run.run_id} does not wait for an answer to {request_id!r}")
    if not places.is_free_for(connection, run.session_id, run.run_id, now):
        return False
    seconds = round((now - wait.started_at) / 1000, 1)
    late = f"node {wait.node_id!r}: its session gave no answer within {seconds:g} s"
    cancel_requests(connection, run, late, now)
    end_turns(connection, run, now)
    cancel_messages(connection, run, ("step",), now)
    close_wait(connection, run, wait, "timed_out", now, error=blobs.put_text(connection, late, now))
    set_run(connection, run, "running", now)
    set_queue(connection, run, "starting", now)
    payload = {"attemptId": wait.attempt_id, "requestId": request_id}
    actor = (claim.owner_type, claim.owner_id)
    began = "run.interaction_timeout_started"
    event(connection, run, began, payload, now, actor=actor, generation=claim.generation)
    return True


def close_wait(
    connection: sqlite3.Connection,
    run: RunRow,
    wait: OpenWait,
    status: str,
    now: int,
    *,
    output: bytes | None = None,
    error: bytes | None = None,
) -> int:
    """End the attempt that a run waited in; it is a step. Gives its index."""
    connection.execute(
        "UPDATE node_attempts SET status = ?, output_hash = ?, error_hash = ?, finished_at = ?, updated_at = ?"
        " WHERE attempt_id = ?",
        (status, output, error, max(now, wait.started_at), now, wait.attempt_id),
    )
    index: int = connection.execute(
        "INSERT INTO run_steps(run_id, step_index, attempt_id)"
        " SELECT ?1, coalesce(max(step_index) + 1, 0), ?2 FROM run_steps WHERE run_id = ?1 RETURNING step_index",
        (run.run_id, wait.attempt_id),
    ).fetchone()[0]
    payload = {
        "attemptId": wait.attempt_id,
        "nodeId": wait.node_id,
        "payload": {"nodeType": wait.node_type},
        "scope": "node",
    }
    kind = {"completed": "node_finished", "failed": "node_failed"}.get(status, "node_timed_out")
    event(connection, run, kind, payload, now, actor=SYSTEM)
    return index


def _over_at(given: End, now: int) -> int | None:
    return given.due_at if given.pause_ms is None else now + given.pause_ms


def _keep_open(connection: sqlite3.Connection, run: RunRow, due_at: int | None, now: int) -> None:
    connection.execute(
        "UPDATE node_attempts SET status = 'waiting', deadline_at = ?, updated_at = ?"
        " WHERE run_id = ? AND status = 'running'",
        (due_at, now, run.run_id),
    )


def _parked(connection: sqlite3.Connection, run: RunRow, claim: Claim, now: int) -> None:
    actor = (claim.owner_type, claim.owner_id)
    payload = {"status": "parked"}
    event(connection, run, "run.queue_parked", payload, now, actor=actor, generation=claim.generation)
    places.pass_on(connection, run.session_id, now)
