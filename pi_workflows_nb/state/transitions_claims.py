"""Claims of a run: to execute it, to validate a submission to it, to control it.

A claim is a handover: whoever held the run before is fenced by the generation, and losing one is no failure of the run.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire.errors import ConflictError
from . import mutation, places, run_effects, runs
from .mutation import Claim
from .runs import RunRow
from .transitions_parking import park_ambiguous
from .transitions_record import event, interrupt_attempts, set_queue, set_run
from .transitions_waits import expire_event, wake

RUN_LEASE_MS: Final = 30_000
CONTROL_LEASE_MS: Final = 30_000
CONTROL_OWNER: Final = "workflow-control"

_PENDING_REQUEST: Final = (
    "SELECT 1 FROM node_attempts a JOIN interactive_requests i USING (attempt_id)"
    " WHERE a.run_id = ? AND a.status = 'waiting' AND i.status = 'pending'"
)
_VALIDATING: Final = (
    "SELECT 1 FROM interactive_submissions s JOIN interactive_requests i USING (request_id)"
    " JOIN node_attempts a USING (attempt_id) WHERE a.run_id = ? AND s.outcome = 'validating'"
)


def claimable(connection: sqlite3.Connection, run: RunRow, now: int) -> bool:
    """Whether a run that is due can be claimed for execution. Whether it is due is told by a clock that never jumps."""
    return (
        (run.queue_status in places.HOLDING or (run.queue_status == "parked" and run.status == "running"))
        and run.status in ("queued", "running")
        and not run.paused
        and (run.owner_id is None or (run.expires_at or 0) <= now)
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
    if run.status == "waiting":
        expire_event(connection, run, now)
    if not claimable(connection, run, now):
        return None
    if run_effects.settle_uncertain(connection, run, now):
        park_ambiguous(connection, run, now)
        return None
    claim = mutation.claim_lease(connection, run.resource_id, "host", owner_id, lease_ms, now)
    if claim is None:
        return None
    wake(connection, run, now)
    interrupt_attempts(connection, run, now)
    set_run(connection, run, "running", now)
    set_queue(connection, run, "starting", now)
    _claimed(connection, run, claim, now)
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
    payload = {"status": "running"}
    actor = ("host", claim.owner_id)
    event(connection, run, "run.queue_running", payload, now, actor=actor, generation=claim.generation)  # type: ignore[arg-type]
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
    claim = mutation.claim_lease(connection, run.resource_id, "host", owner_id, lease_ms, now)
    if claim is not None:
        _claimed(connection, run, claim, now)
    return claim


def claim_for_control(connection: sqlite3.Connection, run: RunRow, now: int) -> Claim | None:
    """Take a run whose holder has let its claim expire, for as long as a control takes; the queue row stays as it is.

    None when nobody holds it, or a live claim of this server does, under which it may act.
    """
    if run.owner_id is None or (run.expires_at or 0) > now:
        return None
    claim = mutation.claim_lease(connection, run.resource_id, "system", CONTROL_OWNER, CONTROL_LEASE_MS, now)
    assert claim is not None
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
