"""The life of a run: each function is one transition of run, queue, lease, attempts, effects and view.

All are called inside a transaction, check before they write, and leave a state that `verify` accepts. The states and
what they mean:

    run       queue             claim  meaning
    queued    queued            -      ready
    queued    parked            -      paused before its start
    running   starting          held   launch recorded
    running   running           held   executing
    running   parked            -      stopped at a durable boundary, can go on
    waiting   parked            -      a checkpoint or an ambiguous effect waits for a person
    waiting   done              -      answered: a continuation goes on
    terminal  done/failed/...   -      over
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire import identities
from ..wire.errors import ConflictError
from ..wire.runner_messages import ERROR_UNITS, End
from . import blobs, mutation, run_effects, runs, viewer
from .mutation import ActorType, Claim
from .runs import RunRow

RUN_LEASE_MS: Final = 30_000
QUEUE_END: Final = {"completed": "done", "failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}
STOPPED: Final = ("workflowSourceChanged", "runnerNoProgress")


def _event(
    connection: sqlite3.Connection,
    run: RunRow,
    event_type: str,
    payload: dict[str, Any],
    now: int,
    *,
    actor: tuple[ActorType, str | None],
    generation: int | None = None,
) -> None:
    mutation.bump(connection, run.resource_id, run.revision, now)
    run.revision += 1
    mutation.record_event(
        connection, run.resource_id, run.revision, event_type, actor[0], actor[1], payload, now, generation
    )
    viewer.record(connection, run.run_id, ("summary",), now)


def _set_queue(
    connection: sqlite3.Connection,
    run_id: str,
    status: str,
    now: int,
    *,
    available_at: int | None = None,
    code: str | None = None,
    error: bytes | None = None,
    errors: int | None = None,
    finished: bool = False,
) -> None:
    connection.execute(
        "UPDATE run_queue SET status = ?, available_at = coalesce(?, available_at), error_code = ?, error_hash = ?,"
        " consecutive_errors = coalesce(?, consecutive_errors), updated_at = ?, finished_at = ? WHERE run_id = ?",
        (status, available_at, code, error, errors, now, now if finished else None, run_id),
    )


def claimable(run: RunRow, now: int) -> bool:
    """Whether a run that is due can be claimed for execution. Whether it is due is told by a clock that never jumps."""
    return (
        run.queue_status in ("queued", "parked", "starting", "running")
        and run.status in ("queued", "running")
        and not run.paused
        and (run.owner_id is None or (run.expires_at or 0) <= now)
        and run.error_code not in STOPPED
    )


def claim_for_execution(
    connection: sqlite3.Connection, run_id: str, owner_id: str, now: int, *, lease_ms: int = RUN_LEASE_MS
) -> Claim | None:
    """Take a run for a new generation, for `lease_ms` at first, or None when it is not to be had (any more).

    What its last runner left uncertain is settled first: an idempotent effect may be applied again, a manual one parks
    the run until a person says what happened.
    """
    run = runs.read(connection, run_id)
    if not claimable(run, now):
        return None
    if run_effects.settle_uncertain(connection, run, now):
        park_ambiguous(connection, run, now)
        return None
    claim = mutation.claim_lease(connection, run.resource_id, "host", owner_id, lease_ms, now)
    if claim is None:
        return None
    _interrupt_attempts(connection, run_id, now)
    connection.execute(
        "UPDATE runs SET status = 'running', finished_at = NULL, status_detail = NULL, updated_at = ? WHERE run_id = ?",
        (now, run_id),
    )
    _set_queue(connection, run_id, "starting", now)
    _event(
        connection,
        run,
        "lease.claimed",
        {"expiresAt": claim.expires_at},
        now,
        actor=("host", owner_id),
        generation=claim.generation,
    )
    return claim


def mark_running(connection: sqlite3.Connection, run_id: str, claim: Claim, now: int) -> int:
    """The runner is live: the queue row says so. Gives the run's revision."""
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    connection.execute(
        "UPDATE run_queue SET status = 'running', started_at = coalesce(started_at, ?), updated_at = ?"
        " WHERE run_id = ?",
        (now, now, run_id),
    )
    _event(
        connection,
        run,
        "run.queue_running",
        {"status": "running"},
        now,
        actor=("host", claim.owner_id),
        generation=claim.generation,
    )
    return run.revision


def record_engine_event(
    connection: sqlite3.Connection, run_id: str, claim: Claim, event_type: str, payload: dict[str, Any], now: int
) -> int:
    """An event of the engine that changes nothing else, as `run_initialized`. Gives the run's revision."""
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    _event(connection, run, event_type, {"payload": payload, "scope": "run"}, now, actor=("system", None))
    return run.revision


def record_update(
    connection: sqlite3.Connection,
    run_id: str,
    claim: Claim,
    attempt_id: str,
    update_type: str,
    key: str,
    data: bytes,
    now: int,
) -> int:
    """One published update of the running attempt; `data` is canonical JSON. Gives the run's revision."""
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    active = connection.execute(
        "SELECT node_id FROM node_attempts WHERE attempt_id = ? AND run_id = ? AND status = 'running'",
        (attempt_id, run_id),
    ).fetchone()
    if active is None:
        raise ConflictError(f"attempt {attempt_id} of run {run_id} is not running")
    payload = {
        "attemptId": attempt_id,
        "nodeId": active[0],
        "payload": {"key": key, "type": update_type},
        "scope": "node",
    }
    _event(connection, run, "update_published", payload, now, actor=("system", None))
    connection.execute(
        "INSERT INTO workflow_updates SELECT ?, ?, coalesce(max(update_seq), 0) + 1, ?, ?, ?, ?, ?"
        " FROM workflow_updates WHERE attempt_id = ?",
        (
            f"upd_{identities.new_id()}",
            attempt_id,
            run.revision,
            update_type,
            key,
            blobs.put_json_bytes(connection, data, now),
            now,
            attempt_id,
        ),
    )
    return run.revision


def cancel_interrupted(connection: sqlite3.Connection, run_id: str, now: int) -> None:
    """Attempts that a dead runner left open are over once the run's next attempt is about to start."""
    connection.execute(
        "UPDATE node_attempts SET status = 'cancelled', finished_at = coalesce(finished_at, ?), updated_at = ?"
        " WHERE run_id = ? AND status = 'interrupted'",
        (now, now, run_id),
    )


def _interrupt_attempts(connection: sqlite3.Connection, run_id: str, now: int) -> None:
    connection.execute(
        f"UPDATE node_attempts SET status = 'interrupted', updated_at = ? WHERE run_id = ? AND {runs.ACTIVE_ATTEMPT}",
        (now, run_id),
    )


def park(
    connection: sqlite3.Connection,
    run: RunRow,
    now: int,
    *,
    available_at: int | None = None,
    code: str | None = None,
    detail: str | None = None,
    errors: int | None = None,
    event: str = "run.queue_parked",
) -> None:
    """Stop a running run at its last durable boundary and give its claim back.

    `available_at` (ms) says when it is due again; `code` `workflowSourceChanged` or `runnerNoProgress` makes it wait
    for an explicit resume.
    """
    owner: tuple[ActorType, str | None] = ("host", run.owner_id) if run.owner_id else ("system", None)
    generation = run.generation if run.owner_id else None
    _interrupt_attempts(connection, run.run_id, now)
    mutation.clear_lease(connection, run.resource_id)
    error = None if detail is None or code is None else blobs.put_text(connection, _cap(detail), now)
    _set_queue(connection, run.run_id, "parked", now, available_at=available_at, code=code, error=error, errors=errors)
    connection.execute(
        "UPDATE runs SET status_detail = ?, updated_at = ? WHERE run_id = ?",
        (None if detail is None else _cap(detail), now, run.run_id),
    )
    payload = {"status": "parked"} if code is None else {"code": code, "status": "parked"}
    _event(connection, run, event, payload, now, actor=owner, generation=generation)


def park_ambiguous(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """A manual effect may have happened: the run waits until a person has confirmed or retried it."""
    owner: tuple[ActorType, str | None] = ("host", run.owner_id) if run.owner_id else ("system", None)
    generation = run.generation if run.owner_id else None
    connection.execute(
        "UPDATE node_attempts SET status = 'waiting', updated_at = ? WHERE run_id = ?"
        " AND status IN ('pending', 'running', 'interrupted')",
        (now, run.run_id),
    )
    connection.execute(
        "UPDATE runs SET status = 'waiting', status_detail = ?, updated_at = ?, finished_at = ? WHERE run_id = ?",
        ("an effect may have happened: confirm it or retry it", now, now, run.run_id),
    )
    mutation.clear_lease(connection, run.resource_id)
    _set_queue(connection, run.run_id, "parked", now, code="effectAmbiguous")
    _event(
        connection,
        run,
        "run.effect_ambiguous",
        {"code": "effectAmbiguous", "status": "parked"},
        now,
        actor=owner,
        generation=generation,
    )


def resume_after_effect(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """A person has settled the last ambiguous effect: the run is due again."""
    _interrupt_attempts(connection, run.run_id, now)
    connection.execute(
        "UPDATE runs SET status = 'running', status_detail = NULL, finished_at = NULL, updated_at = ? WHERE run_id = ?",
        (now, run.run_id),
    )
    _set_queue(connection, run.run_id, "parked", now, available_at=now)
    _event(connection, run, "run.resumed", {"status": "parked"}, now, actor=("human", None))


def pause(connection: sqlite3.Connection, run_id: str, now: int, actor: str) -> RunRow:
    """Park a run until `resume`; its runner, if any, is fenced by this and to be ended by the caller."""
    run = runs.read(connection, run_id)
    if run.status not in ("queued", "running"):
        raise ConflictError(f"run {run_id} cannot be paused: it is {run.status}")
    if run.paused:
        return run
    connection.execute("UPDATE runs SET paused = 1, updated_at = ? WHERE run_id = ?", (now, run_id))
    _interrupt_attempts(connection, run_id, now)
    if run.owner_id is not None:
        mutation.clear_lease(connection, run.resource_id)
    _set_queue(connection, run_id, "parked", now, code=run.error_code)
    _event(connection, run, "run.paused", {"status": "parked"}, now, actor=("control", actor))
    return run


def resume(connection: sqlite3.Connection, run_id: str, now: int, actor: str) -> RunRow:
    """Make a paused run, or one that was stopped for want of progress or for its source, due again."""
    run = runs.read(connection, run_id)
    if run.status not in ("queued", "running"):
        raise ConflictError(f"run {run_id} cannot be resumed: it is {run.status}")
    if not run.paused and run.error_code not in STOPPED:
        return run
    connection.execute(
        "UPDATE runs SET paused = 0, status_detail = NULL, updated_at = ? WHERE run_id = ?", (now, run_id)
    )
    status = "queued" if run.status == "queued" else "parked"
    _set_queue(connection, run_id, status, now, available_at=now, errors=0)
    _event(connection, run, "run.resumed", {"status": status}, now, actor=("control", actor))
    return run


def cancel(connection: sqlite3.Connection, run_id: str, now: int, actor: str, detail: str) -> RunRow:
    """End a run as cancelled, at once and whoever holds it; its runner is fenced and to be ended by the caller."""
    run = runs.read(connection, run_id)
    if run.status == "cancelled":
        return run
    if run.status in runs.TERMINAL or run.queue_status == "done":
        raise ConflictError(f"run {run_id} cannot be cancelled: it is over ({run.status})")
    if run.owner_id is not None:
        connection.execute("UPDATE leases SET generation = generation + 1 WHERE resource_id = ?", (run.resource_id,))
    _end(connection, run, "cancelled", None, detail, now, actor=("control", actor), generation=None, events=())
    return run


def end(connection: sqlite3.Connection, run_id: str, claim: Claim, given: End, output: bytes | None, now: int) -> int:
    """The end that a runner proposed, or its wait at a checkpoint. `output` is a stored blob's digest.

    Gives the run's revision, two higher.
    """
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    actor: tuple[ActorType, str | None] = ("host", claim.owner_id)
    if given.status != "waiting":
        event = f"run_{given.status}"
        _end(
            connection,
            run,
            given.status,
            output,
            given.error,
            now,
            actor=actor,
            generation=claim.generation,
            events=(event,),
        )
        return run.revision
    connection.execute(
        "UPDATE runs SET status = 'waiting', status_detail = ?, updated_at = ?, finished_at = ? WHERE run_id = ?",
        (given.detail, now, now, run_id),
    )
    mutation.clear_lease(connection, run.resource_id)
    _set_queue(connection, run_id, "parked", now)
    _event(connection, run, "run_waiting", {"payload": {}, "scope": "run"}, now, actor=("system", None))
    _event(connection, run, "run.queue_parked", {"status": "parked"}, now, actor=actor, generation=claim.generation)
    return run.revision


def _end(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    output: bytes | None,
    error: str | None,
    now: int,
    *,
    actor: tuple[ActorType, str | None],
    generation: int | None,
    events: tuple[str, ...],
) -> None:
    error_hash = None if error is None else blobs.put_text(connection, _cap(error), now)
    connection.execute(
        "UPDATE runs SET status = ?, paused = 0, status_detail = NULL, final_output_hash = ?, error_hash = ?,"
        " updated_at = ?, finished_at = ? WHERE run_id = ?",
        (status, output, error_hash, now, now, run.run_id),
    )
    if status == "completed":
        code = None
        cancel_interrupted(connection, run.run_id, now)
    else:
        code = status
        _sweep_dependents(connection, run, error_hash, now, actor)
    mutation.clear_lease(connection, run.resource_id)
    queue_status = QUEUE_END[status]
    _set_queue(connection, run.run_id, queue_status, now, code=code, error=error_hash, finished=True)
    for event in events:
        _event(connection, run, event, {"payload": {}, "scope": "run"}, now, actor=("system", None))
    payload: dict[str, Any] = {"status": queue_status}
    if code is not None:
        payload |= {"code": code, "error": _cap(error or "")}
    _event(connection, run, f"run.queue_{queue_status}", payload, now, actor=actor, generation=generation)


def _sweep_dependents(
    connection: sqlite3.Connection, run: RunRow, error: bytes | None, now: int, actor: tuple[ActorType, str | None]
) -> None:
    """Nothing that belongs to a run may stay open when the run ends any other way than completed."""
    run_id = run.run_id
    connection.execute(
        "UPDATE node_attempts SET status = 'cancelled', error_hash = coalesce(error_hash, ?),"
        " finished_at = coalesce(finished_at, ?), updated_at = ?"
        " WHERE run_id = ? AND status IN ('pending', 'running', 'waiting', 'interrupted')",
        (error, now, now, run_id),
    )
    run_effects.close_all(connection, run, now, actor=actor[1] or "workflow-control")
    connection.execute(
        "UPDATE workflow_turns SET state = 'ended', stop_reason = 'lost', ended_at = ?"
        " WHERE run_id = ? AND state = 'started'",
        (now, run_id),
    )
    connection.execute(
        "UPDATE workflow_messages SET status = 'cancelled', updated_at = ?"
        " WHERE run_id = ? AND status = 'pending' AND kind IN ('step', 'decision', 'followUp')",
        (now, run_id),
    )


def _cap(text: str) -> str:
    return identities.cap_units(text, ERROR_UNITS)
