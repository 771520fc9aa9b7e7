"""Ways of stopping at a durable boundary: parked and due again, or until a person acts.

running/parked                           due at `available_at`
running/parked  workflowSourceChanged    until an explicit resume
running/parked  runnerNoProgress         until an explicit resume
waiting/parked  effectAmbiguous          until a person says what happened
"""

from __future__ import annotations

import sqlite3

from . import blobs, mutation, places
from .runs import RunRow
from .transitions_record import cap, event, holder_of, interrupt_attempts, set_queue, set_run


def park(
    connection: sqlite3.Connection, run: RunRow, now: int, *, available_at: int, errors: int | None = None
) -> None:
    """Stop a running run at its last durable boundary and give its claim back; it is due again at `available_at` (ms).

    `errors` is how many runners in a row have crashed.
    """
    _park(connection, run, now, "run.queue_parked", available_at=available_at, errors=errors)


def park_for_source_change(connection: sqlite3.Connection, run: RunRow, why: str | None, now: int) -> None:
    """The run's source is not what it was started with, or may not be loaded here: it waits for a resume."""
    _park(connection, run, now, "run.source_changed", available_at=now, code="workflowSourceChanged", detail=why)


def park_without_progress(connection: sqlite3.Connection, run: RunRow, why: str, now: int, *, errors: int) -> None:
    """Its runners end without finishing a node: it waits for a resume."""
    event_type, code = "run.worker_no_progress", "runnerNoProgress"
    _park(connection, run, now, event_type, available_at=now, code=code, detail=why, errors=errors)


def _park(
    connection: sqlite3.Connection,
    run: RunRow,
    now: int,
    event_type: str,
    *,
    available_at: int | None = None,
    code: str | None = None,
    detail: str | None = None,
    errors: int | None = None,
) -> None:
    actor, generation = holder_of(run)
    interrupt_attempts(connection, run, now)
    mutation.clear_lease(connection, run.resource_id)
    error = None if detail is None else blobs.put_text(connection, cap(detail), now)
    set_queue(connection, run, "parked", now, available_at=available_at, code=code, error=error, errors=errors)
    set_run(connection, run, run.status, now, detail=detail)
    payload = {"status": "parked"} if code is None else {"code": code, "status": "parked"}
    event(connection, run, event_type, payload, now, actor=actor, generation=generation)
    places.pass_on(connection, run.session_id, now)


def park_ambiguous(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """A manual effect may have happened: the run waits until a person has confirmed or retried it."""
    actor, generation = holder_of(run)
    connection.execute(
        "UPDATE node_attempts SET status = 'waiting', updated_at = ? WHERE run_id = ?"
        " AND status IN ('pending', 'running', 'interrupted')",
        (now, run.run_id),
    )
    set_run(connection, run, "waiting", now, detail="an effect may have happened: confirm it or retry it")
    mutation.clear_lease(connection, run.resource_id)
    set_queue(connection, run, "parked", now, code="effectAmbiguous")
    payload = {"code": "effectAmbiguous", "status": "waiting"}
    event(connection, run, "run.effect_ambiguous", payload, now, actor=actor, generation=generation)
    places.pass_on(connection, run.session_id, now)


def resume_after_effect(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """A person has settled the last ambiguous effect: the run is due again, and whoever held it is fenced."""
    interrupt_attempts(connection, run, now)
    mutation.clear_lease(connection, run.resource_id)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "parked", now, available_at=now)
    event(connection, run, "run.resumed", {"status": "parked"}, now, actor=("human", None))
