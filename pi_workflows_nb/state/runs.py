"""Runs as rows: making one, reading one, and what a runner must know to start it or to go on."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final, Literal

from ..wire import canonical_json, identities
from ..wire.errors import ConflictError, NotFoundError
from . import blobs, mutation, places, setting_scopes, viewer

TERMINAL: Final = ("completed", "failed", "timed_out", "cancelled")
ACTIVE_ATTEMPT: Final = "status IN ('pending', 'running', 'waiting')"


@dataclass(frozen=True)
class NewRun:
    """Everything that is committed with a new run. Values are canonical JSON bytes.

    `mounted` are the sources of workflows that it includes by name or path, as `mounted_sources` gives them,
    `settings` what those of the workflow begin as.
    """

    run_id: str
    workflow_name: str
    project_id: str
    snapshot: bytes
    input: bytes | blobs.LargeValue
    launch_options: bytes
    source: dict[str, str]
    frozen: bytes
    session_id: str
    title: str | None = None
    mode: str = "headless"
    mounted: list[dict[str, str]] = field(default_factory=list)
    settings: bytes | None = None


@dataclass(slots=True)
class RunRow:
    """One run with its aggregate, lease and queue row, as one statement reads them."""

    run_id: str
    resource_id: str
    revision: int
    status: str
    paused: bool
    queue_status: str
    available_at: int
    consecutive_errors: int
    error_code: str | None
    generation: int
    owner_id: str | None
    token_hash: bytes | None
    expires_at: int | None
    session_id: str
    project_id: str
    parent_run_id: str | None
    root_run_id: str
    created_at: int
    detail: str | None


@dataclass(frozen=True)
class Lineage:
    """Which run a new run follows, and how; a restart counts those of its chain and says how its parent ended."""

    parent: RunRow
    kind: Literal["continuation", "restart"]
    restart_number: int = 0
    fingerprint: bytes | None = None


_SELECT_RUN: Final = """
    SELECT r.run_id, r.resource_id, a.revision, r.status, r.paused, q.status, q.available_at, q.consecutive_errors,
           q.error_code, l.generation, l.owner_id, l.token_hash, l.expires_at, q.origin_session_id, r.project_id,
           r.parent_run_id, r.root_run_id, q.created_at, r.status_detail
    FROM runs r JOIN resources a USING (resource_id) JOIN leases l USING (resource_id) JOIN run_queue q USING (run_id)
    WHERE r.run_id = ?
"""


def find(connection: sqlite3.Connection, run_id: str) -> RunRow | None:
    """The row of a run, or None where the file has no run of that id."""
    row = connection.execute(_SELECT_RUN, (run_id,)).fetchone()
    return None if row is None else RunRow(*row)


def read(connection: sqlite3.Connection, run_id: str) -> RunRow:
    """The row of a run; `NotFoundError` where there is none."""
    run = find(connection, run_id)
    if run is None:
        raise NotFoundError(f"no run {run_id!r} in this state file; server.runs() lists what it holds")
    return run


def register_project(connection: sqlite3.Connection, path: str, now: int) -> str:
    """The id of a project, registered by its real path if it is new."""
    project_id = identities.project_id(path)
    connection.execute("INSERT OR IGNORE INTO projects VALUES (?, ?, ?)", (project_id, path, now))
    return project_id


def create(connection: sqlite3.Connection, new: NewRun, now: int) -> int:
    """Commit-ready rows of a new root run, due now. Gives its revision (1).

    It is queued, or parked with `sessionBusy` where the place of its session is taken. `ConflictError` when the id is
    taken.
    """
    if find(connection, new.run_id) is not None:
        raise ConflictError(f"a run {new.run_id!r} exists already")
    blobs.put_json_bytes(connection, new.frozen, now)
    insert(connection, new, now)
    return 1


def insert(connection: sqlite3.Connection, new: NewRun, now: int, lineage: Lineage | None = None) -> None:
    """The rows of a new run whose source is stored, and how it follows another."""
    snapshot = blobs.put_json_bytes(connection, new.snapshot, now)
    given = blobs.put_json_bytes(connection, new.input, now)
    options = blobs.put_json_bytes(connection, new.launch_options, now)
    connection.execute(
        "INSERT OR IGNORE INTO workflow_definitions VALUES (?, ?, ?, ?)", (snapshot, new.workflow_name, snapshot, now)
    )
    resource_id = mutation.create_aggregate(connection, "run", new.run_id, now, revision=1)
    parent = lineage.parent if lineage is not None else None
    free = places.is_free_for_new(connection, new.session_id, now)
    connection.execute(
        "INSERT INTO runs(run_id, resource_id, project_id, parent_run_id, root_run_id, lineage_kind, restart_number,"
        " parent_terminal_fingerprint, definition_digest, workflow_ref, launch_options_hash, title, status, paused,"
        " status_detail, input_hash, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', 0, ?, ?, ?, ?)",
        (
            new.run_id,
            resource_id,
            new.project_id,
            parent.run_id if parent else None,
            parent.root_run_id if parent else new.run_id,
            lineage.kind if lineage else None,
            lineage.restart_number if lineage else 0,
            lineage.fingerprint if lineage else None,
            snapshot,
            new.source["ref"],
            options,
            new.title,
            None if free else places.SESSION_BUSY,
            given,
            now,
            now,
        ),
    )
    viewer.initialize(connection, new.run_id, now)
    connection.execute(
        "INSERT INTO run_sources VALUES (?, '', ?, ?, ?)",
        (new.run_id, new.source["type"], new.source["ref"], new.source["revision"]),
    )
    connection.executemany(
        "INSERT INTO run_sources VALUES (?, ?, ?, ?, ?)",
        [(new.run_id, one["mountPath"], one["type"], one["ref"], one["revision"]) for one in new.mounted],
    )
    if new.settings is not None:
        setting_scopes.begin(connection, new.run_id, setting_scopes.ROOT, new.settings, now)
    connection.execute("INSERT INTO run_bindings VALUES (?, ?, ?, ?)", (new.run_id, new.session_id, new.mode, now))
    connection.execute(
        "INSERT INTO run_queue(run_id, status, available_at, origin_session_id, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (new.run_id, "queued" if free else "parked", now, new.session_id, now, now),
    )
    mutation.record_event(connection, resource_id, 1, "run.queued", "session", new.session_id, {}, now)


@dataclass
class LaunchOptions:
    """What a run was started with beside its input, as its launch-options blob holds it."""

    source: str
    tags: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        """Canonical JSON; the source blob is named by its digest in hex."""
        return canonical_json.encode({"source": {"sha256": self.source}, "tags": self.tags})


def mounted_sources(connection: sqlite3.Connection, run_id: str) -> list[dict[str, str]]:
    """Path, type, ref and revision of the sources that are mounted in a run's own, by path."""
    rows = connection.execute(
        "SELECT mount_path, source_type, source_ref, source_revision FROM run_sources"
        " WHERE run_id = ? AND mount_path <> '' ORDER BY mount_path",
        (run_id,),
    )
    return [{"mountPath": path, "ref": ref, "revision": revision, "type": kind} for path, kind, ref, revision in rows]


def continuations_of(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """The run that goes on for a run that was answered, if there is one."""
    query = "SELECT run_id FROM runs WHERE parent_run_id = ? AND lineage_kind = 'continuation'"
    return [heir for (heir,) in connection.execute(query, (run_id,))]


def workflow_name(connection: sqlite3.Connection, run_id: str) -> str:
    """The name of a run's workflow; `NotFoundError` where there is no such run."""
    row = connection.execute(
        "SELECT workflow_name FROM runs JOIN workflow_definitions USING (definition_digest) WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"no run {run_id!r} in this state file; server.runs() lists what it holds")
    return str(row[0])


def frozen_source(connection: sqlite3.Connection, run_id: str) -> bytes:
    """The bytes of the source blob that a run executes, whatever became of its file or cell since."""
    options = blobs.read_json(
        connection,
        connection.execute("SELECT launch_options_hash FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0],
    )
    return blobs.read_json_bytes(connection, bytes.fromhex(options["source"]["sha256"]))
