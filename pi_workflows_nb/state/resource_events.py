"""The history of managed resources: what their managers and others note in it, and how it is read.

Every change of a resource leaves an event (`managed_resources.note_change`); one may also be noted for its own sake.
Times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from ..wire import canonical_json
from . import managed_resources
from .managed_resources import ResourceClaim
from .resource_values import require_text

LIMIT: Final = 100
"""How many events a list holds when nobody says how many."""

_LIST: Final = """
    SELECT e.event_seq, e.recorded_at, c.controller_name, c.resource_key, e.resource_revision, e.event_type, b.content
    FROM events e JOIN controller_resources c USING (resource_id) LEFT JOIN blobs b ON b.blob_hash = e.payload_hash
    WHERE (?1 IS NULL OR c.project_id = ?1) AND (?2 IS NULL OR c.controller_name = ?2)
      AND (?3 IS NULL OR c.resource_key = ?3)
    ORDER BY e.event_seq DESC LIMIT ?4
"""
_LIST_OF_ONE: Final = """
    SELECT e.event_seq, e.recorded_at, c.controller_name, c.resource_key, e.resource_revision, e.event_type, b.content
    FROM controller_resources c CROSS JOIN events e ON e.resource_id = c.resource_id
    LEFT JOIN blobs b ON b.blob_hash = e.payload_hash
    WHERE c.project_id = ?1 AND c.controller_name = ?2 AND c.resource_key = ?3
    ORDER BY e.event_seq DESC LIMIT ?4
"""


@dataclass(frozen=True)
class ResourceEvent:
    """One event of a resource; `seq` orders all events of the file, `resource_version` is the one it led to."""

    seq: int
    recorded_at: int
    resource_manager: str
    key: str
    resource_version: int
    type: str
    payload: Any


def record(
    connection: sqlite3.Connection,
    project_id: str,
    manager: str,
    key: str,
    event_type: str,
    payload: bytes,
    claim: ResourceClaim | None,
    now: int,
) -> ResourceEvent:
    """Note an event, under the live claim or as somebody in control; `payload` from `encode_payload`.

    The resource's version grows by one, as with any change.
    """
    row = managed_resources.require_row(connection, project_id, manager, key)
    if claim is not None:
        managed_resources.require_claim(row, claim, now)
    event_type = require_text(event_type, "the type of an event")
    seq = managed_resources.note_change(connection, row, event_type, payload, now, claim=claim)
    return ResourceEvent(seq, now, manager, key, row.revision + 1, event_type, canonical_json.decode(payload))


def list_newest(
    connection: sqlite3.Connection, project_id: str | None, manager: str | None, key: str | None, limit: int = LIMIT
) -> list[ResourceEvent]:
    """Events of resources that exist, of one project or all, newest first."""
    one = None not in (project_id, manager, key)
    rows = connection.execute(_LIST_OF_ONE if one else _LIST, (project_id, manager, key, limit)).fetchall()
    return [_event(*row) for row in rows]


def _event(
    seq: int, recorded_at: int, manager: str, key: str, version: int, event_type: str, payload: bytes | None
) -> ResourceEvent:
    content = {} if payload is None else canonical_json.decode(payload)
    return ResourceEvent(seq, recorded_at, manager, key, version, event_type, content)
