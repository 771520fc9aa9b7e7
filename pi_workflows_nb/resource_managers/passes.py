"""One pass over a managed resource, as rows: how it begins, what is noted in it, and each way in which it ends.

Every function works in the caller's transaction, and checks all it must before it writes. `now` and all times are in
milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import Any, Final, Literal

from ..state import managed_resources, resource_events, resource_queue, resource_values
from ..state.managed_resources import ManagedResource, ResourceClaim
from ..wire import identities
from ..wire.errors import ManagedResourceConflictError, StaleClaimError
from ..wire.resource_status import UNSET, ChildRun, Condition
from . import backoff

LEASE_MS: Final = 120_000
OWNER: Final = "resource-manager-runtime-"
"""What the owners of all claims begin with; the id of the server follows."""

Ending = Literal["settled", "requeued", "deleted", "conflict"]


@dataclass
class Pass:
    """A pass under way over a resource as it was found. `reconcile_id` names it, and its process.

    `version` is the resource version that it knows of: that of its claim, moved by its own changes alone. `child` is
    the child workflow that it asked for last.
    """

    claim: ResourceClaim
    resource: ManagedResource
    reconcile_id: str
    started_at: int
    version: int
    child: ChildRun | None = None
    applied: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Finish:
    """How a pass wants to end: `after_ms` None settles; `status` is the manager's own, whole, or UNSET."""

    after_ms: int | None
    status: Any
    conditions: Sequence[Condition]
    finalizers: tuple[str, ...] | None


def begin(
    connection: Connection,
    project_id: str,
    managers: Iterable[str],
    owner_id: str,
    exclude: Iterable[tuple[str, str]],
    reconcile_id: str,
    now: int,
) -> Pass | None:
    """Claim the next resource that is ready and note that a pass over it begins; None when none is."""
    claim = resource_queue.claim_next(connection, project_id, managers, owner_id, LEASE_MS, exclude, now)
    if claim is None:
        return None
    resource = managed_resources.get(connection, project_id, claim.resource_manager, claim.key)
    assert resource is not None
    started = Pass(claim, resource, reconcile_id, now, claim.resource_version)
    started.version = note(connection, started, "reconcile_started", {"generation": resource.generation}, now)
    return started


def note(connection: Connection, one: Pass, event: str, payload: dict[str, Any], now: int) -> int:
    """Record an event of a pass, and give the version that it knows of then.

    A change that somebody else made meanwhile stays unknown to it, so that its end finds the conflict.
    """
    if event.startswith("reconcile_") or event == "resource_deleted":
        payload = {**payload, "reconcileId": one.reconcile_id}
    return _note(connection, one, event, resource_values.encode_payload(payload), one.version, now)


def _note(connection: Connection, one: Pass, event: str, payload: bytes, version: int, now: int) -> int:
    claim = one.claim
    noted = resource_events.record(
        connection, claim.project_id, claim.resource_manager, claim.key, event, payload, claim, now
    )
    return noted.resource_version if noted.resource_version == version + 1 else version


def finish(connection: Connection, one: Pass, wanted: Finish, now: int) -> Ending:
    """End a pass as its manager wants: the status, what is noted of it, then the queue.

    A resource that was changed by somebody else is looked at again at once. `StaleClaimError` when the claim is lost,
    `ManagedResourceError` for a status or finalizers that cannot be.
    """
    claim, resource = one.claim, one.resource
    project, manager, key = claim.project_id, claim.resource_manager, claim.key
    status = resource.status.patched(
        generation=resource.generation,
        now=now,
        conditions=wanted.conditions,
        resource_manager_status=wanted.status,
        workflow_run=UNSET if one.child is None else one.child,
    )
    content = resource_values.encode_status(status)
    finalizers = None if wanted.finalizers is None else resource_values.require_finalizers(wanted.finalizers)
    try:
        updated = managed_resources.update_status(
            connection, project, manager, key, claim, content, one.version, finalizers, now
        )
    except ManagedResourceConflictError:
        note(connection, one, "reconcile_conflict", {}, now)
        resource_queue.requeue(connection, project, claim, now, None, now)
        return "conflict"
    after = {} if wanted.after_ms is None else {"requeueAfterMs": wanted.after_ms}
    told = {
        "durationMs": max(0, now - one.started_at),
        "generation": resource.generation,
        "reconcileId": one.reconcile_id,
        "result": "settled" if wanted.after_ms is None else "requeue",
        **after,
    }
    payload = resource_values.encode_payload(told)
    version = _note(connection, one, "reconcile_finished", payload, updated.resource_version, now)
    if wanted.after_ms is not None:
        resource_queue.requeue(connection, project, claim, now + wanted.after_ms, None, now)
        return "requeued"
    if updated.deletion_timestamp is not None and not updated.finalizers:
        gone = resource_values.encode_payload({"reconcileId": one.reconcile_id})
        version = _note(connection, one, "resource_deleted", gone, version, now)
        managed_resources.delete(connection, project, manager, key, claim, version, now)
        return "deleted"
    resource_queue.settle(connection, project, claim, now)
    return "settled"


def fail(connection: Connection, one: Pass, error: str, now: int) -> bool:
    """End a pass that did not come to an end of its own: it is made again after a while that grows. False when lost."""
    claim = one.claim
    delay = backoff.delay_ms(claim.consecutive_errors + 1)
    payload = {
        "durationMs": max(0, now - one.started_at),
        "error": identities.cap_units(error),
        "requeueAfterMs": delay,
    }
    try:
        note(connection, one, "reconcile_failed", payload, now)
    except StaleClaimError as stale:
        if stale.reason != "expired":
            return False
    except LookupError:
        return False  # deleted by force meanwhile
    return resource_queue.requeue(connection, claim.project_id, claim, now + delay, error, now)


def hand_back(connection: Connection, one: Pass, now: int) -> bool:
    """End a pass that the server's own end cut short: it is made again at once. False when the claim is lost."""
    return resource_queue.requeue(connection, one.claim.project_id, one.claim, now, None, now)
