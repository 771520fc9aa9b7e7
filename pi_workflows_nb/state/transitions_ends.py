"""The end of a run: terminal at once, its claim free, and nothing that hangs on it left open."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire.runner_messages import End
from . import blobs, mutation, places, runs, transitions_waits
from .mutation import Claim
from .runs import RunRow
from .transitions_dependents import sweep
from .transitions_record import SYSTEM, Actor, cap, event, set_queue

QUEUE_END: Final = {"completed": "done", "failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}


def end(connection: sqlite3.Connection, run_id: str, claim: Claim, given: End, output: bytes | None, now: int) -> int:
    """What a runner proposed as the end of its walk: an end of the run, a wait or a sleep.

    `output` is a stored blob's digest. Gives the run's revision, two higher.
    """
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    if given.status == "sleeping":
        transitions_waits.sleep(connection, run, claim, given, now)
    elif given.status == "waiting":
        transitions_waits.wait(connection, run, claim, given, now)
    else:
        engine = f"run_{given.status}"
        actor: Actor = (claim.owner_type, claim.owner_id)
        finish(connection, run, given.status, output, given.error, now, actor, claim.generation, engine=engine)
    return run.revision


def finish(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    output: bytes | None,
    error: str | None,
    now: int,
    actor: Actor,
    generation: int | None,
    *,
    engine: str | None = None,
    stale: bool = False,
    code: str | None = None,
) -> None:
    """End a run, whoever does it, with everything that hangs on it.

    `engine` is the event by which the engine tells of it; `stale` says that nobody alive held the run any more; `code`
    stands in the queue row instead of the status of a run that did not complete.
    """
    error_hash = None if error is None else blobs.put_text(connection, cap(error), now)
    connection.execute(
        "UPDATE runs SET status = ?, paused = 0, status_detail = NULL, final_output_hash = ?, error_hash = ?,"
        " updated_at = ?, finished_at = ? WHERE run_id = ?",
        (status, output, error_hash, now, now, run.run_id),
    )
    sweep(connection, run, status, error_hash, now, actor)
    mutation.clear_lease(connection, run.resource_id)
    queue_status = QUEUE_END[status]
    code = None if status == "completed" else code or status
    set_queue(connection, run, queue_status, now, code=code, error=error_hash, finished=True)
    if engine is not None:
        event(connection, run, engine, {"payload": {}, "scope": "run"}, now, actor=SYSTEM)
    payload: dict[str, Any] = {"status": queue_status}
    if stale:
        payload |= {"code": code, "staleControl": True}
    elif code is not None:
        payload |= {"code": code, "error": cap(error or "")}
    event(connection, run, f"run.queue_{queue_status}", payload, now, actor=actor, generation=generation)
    places.pass_on(connection, run.session_id, now)
