"""What a person does to a run: pause, resume, cancel.

Each says what it refuses by the same rules that viewers show. The runner of a run, if it has one, is fenced by these
and to be ended by the caller.
"""

from __future__ import annotations

import sqlite3

from . import interactive_requests, mutation, places, runs, waits
from .controls import require
from .runs import RunRow
from .transitions_claims import claim_for_control
from .transitions_dependents import cancel_messages
from .transitions_ends import finish
from .transitions_record import event, interrupt_attempts, set_queue


def pause(connection: sqlite3.Connection, run_id: str, now: int, actor: str) -> RunRow:
    """Park a run at its last boundary until `resume`; one that waits or sleeps goes on waiting, but is not answered.

    A run that is paused already is left as it is. `ConflictError` for one that is over, or stopped for another reason.
    """
    run = runs.read(connection, run_id)
    if run.paused:
        return run
    require(run_id, waits.standing(connection, run), "pause")
    claim_for_control(connection, run, now)
    connection.execute(
        "UPDATE runs SET paused = 1, status_detail = nullif(status_detail, ?), updated_at = ? WHERE run_id = ?",
        (places.SESSION_BUSY, now, run_id),
    )
    if run.queue_status != "parked":
        interrupt_attempts(connection, run, now)
    mutation.clear_lease(connection, run.resource_id)
    cancel_messages(connection, run, ("step",), now)
    asked = _asked(connection, run)
    if asked is not None:
        interactive_requests.reject_validating(connection, asked, "the run was paused", now)
    set_queue(connection, run, "parked", now, code=run.error_code)
    event(connection, run, "run.paused", {"status": "parked"}, now, actor=("control", actor))
    places.pass_on(connection, run.session_id, now)
    return run


def resume(connection: sqlite3.Connection, run_id: str, now: int, actor: str) -> RunRow:
    """Let a run that is paused, or was stopped for want of progress or for its source, go on from its boundary.

    One that waits does so again in place, one that sleeps sleeps on, one that was not started takes its session's place
    or stands in line for it. A run that needs no resume is left as it is; `ConflictError` for one that is over.
    """
    run = runs.read(connection, run_id)
    if not run.paused and run.error_code not in places.STOPPED and run.status in ("queued", "running"):
        return run
    require(run_id, waits.standing(connection, run), "resume")
    detail, due_at, code = None, now, None
    queue_status = status = "parked"
    if run.status == "queued":
        free = places.is_free_for(connection, run.session_id, run_id, now)
        queue_status = status = "queued" if free else "parked"
        detail = None if free else places.SESSION_BUSY
    elif run.status == "waiting":
        status, detail, code, due_at = "waiting", run.detail, run.error_code, run.available_at
    elif (asleep := waits.open_wait(connection, run)) is not None and asleep.due_at is not None:
        due_at = asleep.due_at
    connection.execute(
        "UPDATE runs SET paused = 0, status_detail = ?, updated_at = ? WHERE run_id = ?", (detail, now, run_id)
    )
    errors = None if run.status == "waiting" else 0
    set_queue(connection, run, queue_status, now, available_at=due_at, code=code, errors=errors)
    event(connection, run, "run.resumed", {"status": status}, now, actor=("control", actor))
    asked = _asked(connection, run)
    if asked is not None:
        interactive_requests.ask_again(connection, asked, "resumed", now)
    return run


def _asked(connection: sqlite3.Connection, run: RunRow) -> str | None:
    """The request that a run waits for."""
    wait = waits.open_wait(connection, run)
    return None if wait is None else interactive_requests.pending_of(connection, wait.attempt_id)


def cancel(
    connection: sqlite3.Connection, run_id: str, now: int, actor: str, detail: str, *, claimed: bool = False
) -> RunRow:
    """End a run as cancelled, at once and whoever holds it; with `claimed` one that nobody holds is claimed for it.

    One that is cancelled already is left as it is. `ConflictError` for one that is over otherwise, or was answered.
    """
    run = runs.read(connection, run_id)
    if run.status == "cancelled":
        return run
    require(run_id, waits.standing(connection, run), "cancel")
    stale = claim_for_control(connection, run, now, free=claimed)
    finish(
        connection,
        run,
        "cancelled",
        None,
        detail,
        now,
        ("control", actor),
        None if stale is None else stale.generation,
        stale=stale is not None,
    )
    return run
