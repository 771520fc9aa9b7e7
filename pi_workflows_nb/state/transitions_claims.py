"""Claims of a run: to execute it, to validate a submission to it, to control it.

A claim is a handover: whoever held the run before is fenced by the generation, and losing one is no failure of the run.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire.errors import ConflictError
from . import mutation, places, run_effects, runs, waits
from .mutation import Claim
from .runs import RunRow
from .transitions_decisions import expire_decision
from .transitions_parking import park_ambiguous
from .transitions_record import event, interrupt_attempts, owner_type_of, set_queue, set_run
from .transitions_waits import expire_event, wake

RUN_LEASE_MS: Final = 30_000
CONTROL_LEASE_MS: Final = 30_000
CONTROL_OWNER: Final = "workflow-control"

READY: Final = f"""
    r.paused = 0 AND (q.error_code IS NULL OR q.error_code NOT IN {places.STOPPED}) AND (
        q.status IN {places.HOLDING} AND r.status IN ('queued', 'running')
        OR q.status = 'parked' AND r.status = 'running'
        OR q.status = 'parked' AND r.status = 'waiting' AND {waits.TIMED})
"""
"""Whether run `r` with queue row `q` is claimed some time: when it is due, or its holder's claim has expired."""

_DUE: Final = f"""
    SELECT r.run_id FROM run_queue q JOIN runs r USING (run_id) JOIN leases l USING (resource_id)
    WHERE q.available_at <= ?1 AND (l.owner_type IS NULL OR l.expires_at <= ?1) AND r.project_id = ?2 AND {READY}
    ORDER BY q.available_at, q.created_at, r.rowid
"""
_PENDING_REQUEST: Final = (
    "SELECT 1 FROM node_attempts a JOIN interactive_requests i USING (attempt_id)"
    " WHERE a.run_id = ? AND a.status = 'waiting' AND i.status = 'pending'"
)
_VALIDATING: Final = (
    "SELECT 1 FROM interactive_submissions s JOIN interactive_requests i USING (request_id)"
    " JOIN node_attempts a USING (attempt_id) WHERE a.run_id = ? AND s.outcome = 'validating'"
)


def is_held(run: RunRow, now: int) -> bool:
    """Whether somebody holds a run whose claim has not expired."""
    return run.owner_id is not None and (run.expires_at or 0) > now


def claimable(connection: sqlite3.Connection, run: RunRow, now: int) -> bool:
    """Whether a run that is due can be claimed for execution. Whether it is due is told by a clock that never jumps."""
    return (
        (run.queue_status in places.HOLDING or (run.queue_status == "parked" and run.status == "running"))
        and run.status in ("queued", "running")
        and not run.paused
        and not is_held(run, now)
        and run.error_code not in places.STOPPED
        and connection.execute(_PENDING_REQUEST, (run.run_id,)).fetchone() is None
        and (run.queue_status in places.HOLDING or places.is_free_for(connection, run.session_id, run.run_id, now))
    )


def claim_for_execution(
    connection: sqlite3.Connection, run_id: str, owner_id: str, now: int, *, lease_ms: int = RUN_LEASE_MS
) -> Claim | None:
    """Take a run that is due for a new generation, for `lease_ms` at first, or None when it is not to be had.

    Who slept has slept; who waited for an event has waited in vain. What its last runner left uncertain is settled
    first: an idempotent effect may be applied again, a manual one parks the run until a person says what happened.
    """
    run = runs.read(connection, run_id)
    if run.status == "waiting" and not is_held(run, now):
        expire_event(connection, run, now)
        if run.status == "waiting" and expire_decision(connection, run, now) is not None:
            return None
    if not claimable(connection, run, now):
        return None
    if run_effects.settle_uncertain(connection, run, now):
        park_ambiguous(connection, run, now)
        return None
    claim = mutation.claim_lease(connection, run.resource_id, owner_type_of(owner_id), owner_id, lease_ms, now)
    if claim is None:
        return None
    wake(connection, run, now)
    interrupt_attempts(connection, run, now)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "starting", now)
    _claimed(connection, run, claim, now)
    return claim


def claim_next(
    connection: sqlite3.Connection, project_id: str, owner_id: str, now: int, *, lease_ms: int = RUN_LEASE_MS
) -> tuple[str, Claim] | None:
    """Take the run of a project that has been due longest, then the oldest; None when none is to be had."""
    for (run_id,) in connection.execute(_DUE, (now, project_id)).fetchall():
        claim = claim_for_execution(connection, run_id, owner_id, now, lease_ms=lease_ms)
        if claim is not None:
            return run_id, claim
    return None


def make_due(connection: sqlite3.Connection, run: RunRow, available_at: int, now: int) -> bool:
    """Have a run that can be claimed due at a time, if that is earlier. False for any other, and for a sleeper."""
    if not claimable(connection, run, now) or waits.open_wait(connection, run) is not None:
        return False
    connection.execute(
        "UPDATE run_queue SET available_at = min(available_at, ?), updated_at = ? WHERE run_id = ?",
        (available_at, now, run.run_id),
    )
    return True


def mark_running(connection: sqlite3.Connection, run_id: str, claim: Claim, now: int) -> int:
    """The runner is live: the queue row says so. Gives the run's revision.

    `ConflictError` for a run that is held for anything else.
    """
    run = runs.read(connection, run_id)
    mutation.check_lease(connection, claim, now)
    if run.queue_status not in ("starting", "running"):
        raise ConflictError(f"run {run_id} is {run.status}, {run.queue_status}: it was not claimed to be executed")
    connection.execute(
        "UPDATE run_queue SET status = 'running', started_at = coalesce(started_at, ?), updated_at = ?"
        " WHERE run_id = ?",
        (now, now, run_id),
    )
    payload = {"status": "running"}
    actor = (claim.owner_type, claim.owner_id)
    event(connection, run, "run.queue_running", payload, now, actor=actor, generation=claim.generation)
    return run.revision


def claim_for_validation(
    connection: sqlite3.Connection, run_id: str, owner_id: str, now: int, *, lease_ms: int = RUN_LEASE_MS
) -> Claim | None:
    """Hold a waiting run while a submission to it is validated; it stays waiting and parked.

    None while somebody holds it. `ConflictError` when nothing of it is validated, or it is paused.
    """
    run = runs.read(connection, run_id)
    if run.status != "waiting" or run.queue_status != "parked" or run.paused:
        raise ConflictError(f"run {run_id} takes no submission: it is {'paused' if run.paused else run.status}")
    if connection.execute(_VALIDATING, (run_id,)).fetchone() is None:
        raise ConflictError(f"run {run_id} has no submission to validate")
    claim = mutation.claim_lease(connection, run.resource_id, owner_type_of(owner_id), owner_id, lease_ms, now)
    if claim is not None:
        _claimed(connection, run, claim, now)
    return claim


def claim_for_control(connection: sqlite3.Connection, run: RunRow, now: int, *, free: bool = False) -> Claim | None:
    """Take a run whose holder has let its claim expire, for as long as a control takes; the queue row stays as it is.

    None when a live claim of this server holds it, under which it may act, and, without `free`, when nobody does.
    """
    if (run.owner_id is None and not free) or is_held(run, now):
        return None
    claim = mutation.claim_lease(connection, run.resource_id, "system", CONTROL_OWNER, CONTROL_LEASE_MS, now)
    assert claim is not None
    _claimed(connection, run, claim, now)
    return claim


def hold_for_control(
    connection: sqlite3.Connection, run_id: str, owner_id: str, now: int, *, lease_ms: int = CONTROL_LEASE_MS
) -> Claim | None:
    """Hold a run that waits, or whose holder has let its claim expire, to control it; its queue row stays as it is.

    None while somebody holds it. `ConflictError` for a run that nobody ever holds as it stands.
    """
    run = runs.read(connection, run_id)
    if run.owner_id is None and (run.status, run.queue_status) != ("waiting", "parked"):
        raise ConflictError(f"run {run_id} is {run.status}, {run.queue_status}: it is controlled without a claim")
    claim = mutation.claim_lease(connection, run.resource_id, owner_type_of(owner_id), owner_id, lease_ms, now)
    if claim is not None:
        _claimed(connection, run, claim, now)
    return claim


def release(connection: sqlite3.Connection, run_id: str, claim: Claim, now: int) -> None:
    """Give a claim back that changed nothing, expired or not. `StaleClaimError` when it is another's by now."""
    run = runs.read(connection, run_id)
    mutation.release_lease(connection, claim, now)
    event(
        connection,
        run,
        "lease.released",
        {},
        now,
        actor=(claim.owner_type, claim.owner_id),
        generation=claim.generation,
    )


def _claimed(connection: sqlite3.Connection, run: RunRow, claim: Claim, now: int) -> None:
    run.owner_id, run.generation, run.expires_at = claim.owner_id, claim.generation, claim.expires_at
    payload: dict[str, Any] = {"expiresAt": claim.expires_at}
    actor = (claim.owner_type, claim.owner_id)
    event(connection, run, "lease.claimed", payload, now, actor=actor, generation=claim.generation)
