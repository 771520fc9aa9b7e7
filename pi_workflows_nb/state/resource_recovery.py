"""What a dead server left of its passes over managed resources: claims, and the names of processes.

Every function works in the caller's transaction. `now` and all times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from ..wire import canonical_json
from . import managed_resources, mutation
from .resource_values import NO_PAYLOAD

_CLAIMED: Final = """
    SELECT c.project_id, c.uid, c.controller_resource_id, (
        SELECT b.content FROM events e JOIN blobs b ON b.blob_hash = e.payload_hash
        WHERE e.resource_id = c.resource_id AND e.event_type = 'reconcile_started' ORDER BY e.event_seq DESC LIMIT 1)
    FROM leases l JOIN controller_resources c USING (resource_id)
    WHERE l.owner_type = 'controller' AND substr(l.owner_id, 1, length(?1)) = ?1
"""


class Abandoned(NamedTuple):
    """A claimed resource whose server is gone; `reconcile_id` is what the process of its pass was marked with."""

    project_id: str
    uid: str
    row_id: str
    reconcile_id: str | None


def abandoned(connection: sqlite3.Connection, owner_prefix: str) -> list[Abandoned]:
    """The resources that are claimed by owners with this prefix, none of whom lives."""
    found = []
    for project_id, uid, row_id, content in connection.execute(_CLAIMED, (owner_prefix,)).fetchall():
        payload = {} if content is None else canonical_json.decode(content)
        found.append(Abandoned(project_id, uid, row_id, payload.get("reconcileId")))
    return found


def release(connection: sqlite3.Connection, left: Abandoned, now: int) -> None:
    """Free the claim of a server that is gone; its pass is made again at once."""
    row = managed_resources.require_row_by_uid(connection, left.project_id, left.uid)
    mutation.clear_lease(connection, row.resource_id)
    managed_resources.enqueue_row(connection, left.row_id, now, now)
    managed_resources.note_change(connection, row, "lease.released", NO_PAYLOAD, now, actor="system")


def force_delete(
    connection: sqlite3.Connection, project_id: str, manager: str, key: str, owner_id: str, lease_ms: int, now: int
) -> tuple[str, ...]:
    """End the life of a resource at once, whatever finalizers stand and whoever works on it; gives these finalizers.

    Whoever holds its claim is fenced. `ManagedResourceNotFoundError` where there is none.
    """
    managed_resources.request_deletion(connection, project_id, manager, key, now)
    resource = managed_resources.get(connection, project_id, manager, key)
    assert resource is not None
    dropped, version = resource.finalizers, resource.resource_version
    payload = canonical_json.encode({"clientId": owner_id, "finalizers": list(dropped)})
    row = managed_resources.require_row(connection, project_id, manager, key)
    managed_resources.note_change(connection, row, "resource.deletion_forced", payload, now)
    version += 1
    if dropped:
        managed_resources.update_finalizers(connection, project_id, manager, key, (), version, now)
        version += 1
    mutation.clear_lease(connection, row.resource_id)
    lease = mutation.claim_lease(connection, row.resource_id, "controller", owner_id, lease_ms, now)
    assert lease is not None
    mutation.bump(connection, row.resource_id, version, now)
    mutation.record_event(
        connection,
        row.resource_id,
        version + 1,
        "lease.claimed",
        "controller",
        owner_id,
        {"expiresAt": lease.expires_at},
        now,
        lease.generation,
    )
    claim = managed_resources.ResourceClaim(project_id, manager, key, lease, 0, 0, version + 1, lease.expires_at)
    managed_resources.delete(connection, project_id, manager, key, claim, version + 1, now)
    return dropped
