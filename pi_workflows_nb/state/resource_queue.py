"""The queue of managed resources: one row for each that somebody is to look at, and the claims of those who do.

The queue holds delivery only, never truth: it can be made anew from the resources. A row stays while its resource is
worked on, so that a wake-up in the meantime raises its version and leads to another pass.

Every function works in the caller's transaction. `now` and all times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..wire import identities
from ..wire.errors import StaleClaimError
from . import blobs, managed_resources, mutation, resource_queue_order
from .managed_resources import ResourceClaim, ResourceRow
from .resource_values import NO_PAYLOAD, require_text

_READY: Final = """
    SELECT o.available_at, o.key, c.resource_id, r.revision, q.queue_version, q.consecutive_errors
    FROM temp.resource_queue_order o
    CROSS JOIN controller_resources c
      ON c.project_id = o.project_id AND c.controller_name = o.manager AND c.resource_key = o.key
    CROSS JOIN controller_queue q
      ON q.controller_resource_id = c.controller_resource_id AND q.available_at = o.available_at
    CROSS JOIN leases l ON l.resource_id = c.resource_id
    CROSS JOIN resources r ON r.resource_id = c.resource_id
    WHERE o.project_id = ?1 AND o.manager = ?2 AND o.available_at <= ?3
      AND (l.owner_type IS NULL OR l.expires_at <= ?3)
    ORDER BY o.available_at, o.key
"""

_SETTLE: Final = "DELETE FROM controller_queue WHERE controller_resource_id = ? AND queue_version = ?"
_REQUEUE: Final = """
    INSERT INTO controller_queue(controller_resource_id, available_at, queue_version, consecutive_errors,
      last_error_hash, created_at, updated_at) VALUES (:row, :asked, 1, :failed, :error, :now, :now)
    ON CONFLICT(controller_resource_id) DO UPDATE SET
      available_at = iif(queue_version = :claimed, :asked, min(available_at, :asked)),
      queue_version = queue_version + 1, consecutive_errors = iif(:failed, consecutive_errors + 1, 0),
      last_error_hash = :error, updated_at = :now
"""
_LIST: Final = """
    SELECT c.controller_name, c.resource_key, q.available_at, q.queue_version, q.consecutive_errors, l.expires_at
    FROM controller_resources c JOIN controller_queue q USING (controller_resource_id) JOIN leases l USING (resource_id)
    WHERE c.project_id = ? ORDER BY q.available_at, c.controller_name, c.resource_key
"""


@dataclass(frozen=True)
class QueueEntry:
    """A resource that is to be looked at from `available_at` on; `claim_expires_at` is None while nobody does."""

    resource_manager: str
    key: str
    available_at: int
    queue_version: int
    consecutive_errors: int
    claim_expires_at: int | None


def enqueue(
    connection: sqlite3.Connection, project_id: str, manager: str, key: str, available_at: int, now: int
) -> None:
    """Have a resource looked at from a time on; enqueued already, the earlier time wins."""
    row = managed_resources.require_row(connection, project_id, manager, key)
    managed_resources.enqueue_row(connection, row.row_id, available_at, now)


def claim_next(
    connection: sqlite3.Connection,
    project_id: str,
    managers: Iterable[str],
    owner_id: str,
    lease_ms: int,
    exclude: Iterable[tuple[str, str]],
    now: int,
) -> ResourceClaim | None:
    """Claim what has been ready longest among the resources of the named managers, then by manager and key.

    `exclude` are pairs of manager and key. None when nothing is ready.
    """
    resource_queue_order.keep(connection)
    excluded = {(manager, key) for manager, key in exclude}
    ready: tuple[str, tuple[int, str, str, int, int, int]] | None = None
    for manager in sorted(set(managers)):
        found = _first_ready(connection, project_id, manager, excluded, now)
        if found is not None and (ready is None or found[0] < ready[1][0]):
            ready = manager, found
    if ready is None:
        return None
    manager, (_, key, resource_id, revision, queue_version, errors) = ready
    lease = mutation.claim_lease(
        connection, resource_id, "controller", require_text(owner_id, "an owner"), lease_ms, now
    )
    assert lease is not None
    mutation.bump(connection, resource_id, revision, now)
    payload = {"expiresAt": lease.expires_at}
    mutation.record_event(
        connection, resource_id, revision + 1, "lease.claimed", "controller", owner_id, payload, now, lease.generation
    )
    return ResourceClaim(
        project_id, manager, key, lease, queue_version, errors, revision + 1, expires_at=lease.expires_at
    )


def _first_ready(
    connection: sqlite3.Connection, project_id: str, manager: str, excluded: set[tuple[str, str]], now: int
) -> tuple[int, str, str, int, int, int] | None:
    rows = connection.execute(_READY, (project_id, manager, now))
    try:
        return next((row for row in rows if (manager, row[1]) not in excluded), None)
    finally:
        rows.close()


def renew(connection: sqlite3.Connection, project_id: str, claim: ResourceClaim, lease_ms: int, now: int) -> int | None:
    """Prolong a live claim by `lease_ms` from now on and give its new expiry; None when it is stale."""
    row = _live_row(connection, project_id, claim, now, expiry=True)
    if row is None:
        return None
    expires_at = now + lease_ms
    connection.execute(
        "UPDATE leases SET heartbeat_at = ?, expires_at = ? WHERE resource_id = ?", (now, expires_at, row.resource_id)
    )
    return expires_at


def settle(connection: sqlite3.Connection, project_id: str, claim: ResourceClaim, now: int) -> bool:
    """End a pass: nothing more is to do, unless the resource was enqueued meanwhile. False when the claim is stale."""
    row = _live_row(connection, project_id, claim, now, expiry=False)
    if row is None:
        return False
    connection.execute(_SETTLE, (row.row_id, claim.queue_version))
    _release(connection, row, claim, now)
    return True


def requeue(
    connection: sqlite3.Connection,
    project_id: str,
    claim: ResourceClaim,
    available_at: int,
    error: str | None,
    now: int,
) -> bool:
    """End a pass: there is to be another at a time, or earlier if the resource was enqueued meanwhile.

    An error counts, a pass without one begins the count anew. False when the claim is stale.
    """
    row = _live_row(connection, project_id, claim, now, expiry=False)
    if row is None:
        return False
    connection.execute(
        _REQUEUE,
        {
            "row": row.row_id,
            "asked": available_at,
            "claimed": claim.queue_version,
            "failed": error is not None,
            "error": None if error is None else blobs.put_text(connection, identities.cap_units(error), now),
            "now": now,
        },
    )
    _release(connection, row, claim, now)
    return True


def _live_row(
    connection: sqlite3.Connection, project_id: str, claim: ResourceClaim, now: int, *, expiry: bool
) -> ResourceRow | None:
    if claim.project_id != project_id:
        return None
    row = managed_resources.find_row(connection, project_id, claim.resource_manager, claim.key)
    if row is None:
        return None
    try:
        managed_resources.require_claim(row, claim, now, expiry=expiry)
    except StaleClaimError:
        return None
    return row


def _release(connection: sqlite3.Connection, row: ResourceRow, claim: ResourceClaim, now: int) -> None:
    mutation.clear_lease(connection, row.resource_id)
    managed_resources.note_change(connection, row, "lease.released", NO_PAYLOAD, now, claim=claim)


def list_all(connection: sqlite3.Connection, project_id: str) -> list[QueueEntry]:
    """The queue of a project, in the order in which it is worked off."""
    return [QueueEntry(*row) for row in connection.execute(_LIST, (project_id,)).fetchall()]
