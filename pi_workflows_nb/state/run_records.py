"""Runs and their histories as records, for whoever reads them through a store."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from ..wire import canonical_json
from .places import HEADLESS
from .resource_events import LIMIT

_SELECT: Final = """
    SELECT r.run_id, r.project_id, d.workflow_name, r.workflow_ref, r.definition_digest, r.title, r.status, q.status,
           r.paused, r.status_detail, q.error_code, e.content, q.available_at, q.consecutive_errors, l.owner_id,
           l.generation, l.expires_at, r.parent_run_id, r.root_run_id, r.lineage_kind, r.restart_number,
           n.execution_mode, n.origin_session_id, a.revision, r.created_at, q.started_at, r.updated_at, r.finished_at
    FROM runs r JOIN workflow_definitions d USING (definition_digest) JOIN resources a USING (resource_id)
    JOIN leases l USING (resource_id) LEFT JOIN run_bindings n USING (run_id) LEFT JOIN run_queue q USING (run_id)
    LEFT JOIN blobs e ON e.blob_hash = coalesce(r.error_hash, q.error_hash)
"""
_ONE: Final = f"{_SELECT} WHERE r.run_id = ?1 AND (?2 IS NULL OR r.project_id = ?2)"
_LIST: Final = f"""{_SELECT} WHERE (?1 IS NULL OR r.project_id = ?1)
    ORDER BY coalesce(q.created_at, r.created_at) DESC, r.rowid DESC LIMIT ?2"""
_REVISION: Final = """
    SELECT count(*) || ':' || coalesce(sum(a.revision), 0) || ':' || coalesce(max(q.updated_at), 0)
    FROM runs r JOIN resources a USING (resource_id) LEFT JOIN run_queue q USING (run_id)
    WHERE ?1 IS NULL OR r.project_id = ?1
"""
_EVENTS: Final = """
    SELECT e.event_seq, r.run_id, e.resource_revision, e.event_type, e.actor_type, e.actor_id, e.lease_generation,
           b.content, e.recorded_at
    FROM runs r CROSS JOIN events e ON e.resource_id = r.resource_id LEFT JOIN blobs b ON b.blob_hash = e.payload_hash
    WHERE r.run_id = ?1 AND (?2 IS NULL OR r.project_id = ?2) AND e.event_seq > ?3 ORDER BY e.event_seq LIMIT ?4
"""


@dataclass(frozen=True)
class RunRecord:
    """A run with its queue row and claim. Times in milliseconds; a run that waits has a `finished_at`, too.

    `session_id` is None for a headless run; a run that was made by other means than a queue has no queue row, and None
    in what it tells.
    """

    run_id: str
    project_id: str | None
    workflow: str
    workflow_ref: str
    definition_digest: bytes
    title: str | None
    status: str
    queue_status: str | None
    paused: bool
    detail: str | None
    error_code: str | None
    error: str | None
    available_at: int | None
    consecutive_errors: int | None
    owner_id: str | None
    generation: int
    claim_expires_at: int | None
    parent_run_id: str | None
    root_run_id: str
    lineage: str | None
    restart_number: int
    mode: str | None
    session_id: str | None
    revision: int
    created_at: int
    started_at: int | None
    updated_at: int
    finished_at: int | None

    @property
    def initialized(self) -> bool:
        """Whether it was begun."""
        return self.status != "queued"


@dataclass(frozen=True)
class RunEvent:
    """One event of a run; `seq` orders all events of the file, `revision` is the one of the run that it led to."""

    seq: int
    run_id: str
    revision: int
    type: str
    actor_type: str
    actor_id: str | None
    lease_generation: int | None
    payload: Any
    recorded_at: int


def find(connection: sqlite3.Connection, run_id: str, project_id: str | None) -> RunRecord | None:
    """A run of a project, or of any; None where there is none of that id."""
    row = connection.execute(_ONE, (run_id, project_id)).fetchone()
    return None if row is None else _record(row)


def list_newest(connection: sqlite3.Connection, project_id: str | None, limit: int = LIMIT) -> list[RunRecord]:
    """The runs of a project, or of all, newest first."""
    return [_record(row) for row in connection.execute(_LIST, (project_id, limit)).fetchall()]


def list_revision(connection: sqlite3.Connection, project_id: str | None) -> str:
    """A text that is another one after any change of these runs: their number, revisions and newest queue time."""
    return str(connection.execute(_REVISION, (project_id,)).fetchone()[0])


def events_after(
    connection: sqlite3.Connection, run_id: str, project_id: str | None, after: int, limit: int = LIMIT
) -> list[RunEvent]:
    """Events of a run that are newer than the one with number `after` (0: all), oldest first."""
    found = connection.execute(_EVENTS, (run_id, project_id, after, limit)).fetchall()
    return [_event(*row) for row in found]


def _record(row: tuple[Any, ...]) -> RunRecord:
    values = list(row)
    values[8] = bool(values[8])
    values[11] = None if values[11] is None else values[11].decode("utf-8", "replace")
    if values[22] is not None and values[22].startswith(HEADLESS):
        values[22] = None
    return RunRecord(*values)


def _event(
    seq: int, run_id: str, revision: int, kind: str, actor_type: str, actor_id: str | None, generation: int | None,
    payload: bytes | None, recorded_at: int,
) -> RunEvent:  # fmt: skip
    content = None if payload is None else canonical_json.decode(payload)
    return RunEvent(seq, run_id, revision, kind, actor_type, actor_id, generation, content, recorded_at)
