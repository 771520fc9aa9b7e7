"""A managed resource as clients and command lines are told of it: in a line of a list, and whole."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..state import managed_resources
from ..state.managed_resources import ManagedResource
from ..wire.errors import ManagedResourceNotFoundError

_NAMES: Final = """
    SELECT controller_name, resource_key FROM controller_resources
    WHERE project_id = ?1 AND (?2 IS NULL OR controller_name = ?2) ORDER BY controller_name, resource_key LIMIT ?3
"""
_QUEUE: Final = """
    SELECT q.available_at, q.consecutive_errors, CAST(x.content AS TEXT), l.owner_type IS NOT NULL
    FROM controller_resources c JOIN leases l USING (resource_id)
    LEFT JOIN controller_queue q USING (controller_resource_id) LEFT JOIN blobs x ON x.blob_hash = q.last_error_hash
    WHERE c.uid = ?
"""


def listed(
    connection: sqlite3.Connection, project_id: str, resource_manager: str | None, limit: int
) -> list[dict[str, Any]]:
    """The resources of a project, or of one manager in it, by manager and key."""
    rows = connection.execute(_NAMES, (project_id, resource_manager, limit)).fetchall()
    found = [managed_resources.get(connection, project_id, name, key) for name, key in rows]
    return [summary(one) for one in found if one is not None]


def required(connection: sqlite3.Connection, project_id: str, resource_manager: str, key: str) -> ManagedResource:
    """The resource of that name. `ManagedResourceNotFoundError`."""
    found = managed_resources.get(connection, project_id, resource_manager, key)
    if found is None:
        raise ManagedResourceNotFoundError(f"no managed resource {key!r} of {resource_manager!r} in this project")
    return found


def whole(connection: sqlite3.Connection, found: ManagedResource) -> dict[str, Any]:
    """All there is to know of a resource, with its place in the queue."""
    available_at, errors, error, held = connection.execute(_QUEUE, (found.uid,)).fetchone()
    queue = {
        "availableAt": available_at,
        "consecutiveErrors": errors or 0,
        "error": error,
        "held": bool(held),
    }
    return {**summary(found), "queue": queue, "spec": found.spec, "status": found.status.to_json()}


def summary(found: ManagedResource) -> dict[str, Any]:
    """What a line of a list tells of a resource."""
    return {
        "conditions": {condition.type: condition.status for condition in found.status.conditions},
        "deletionTimestamp": found.deletion_timestamp,
        "finalizers": list(found.finalizers),
        "generation": found.generation,
        "key": found.key,
        "observedGeneration": found.status.observed_generation,
        "resourceManager": found.resource_manager,
        "resourceVersion": found.resource_version,
        "uid": found.uid,
    }
