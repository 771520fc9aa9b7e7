"""Runs as rows: making one, reading one, and what a runner must know to start it or to go on."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any, Final

from ..wire import canonical_json, identities
from ..wire.errors import ConflictError, NotFoundError
from . import blobs, mutation, viewer

TERMINAL: Final = ("completed", "failed", "timed_out", "cancelled")
ACTIVE_ATTEMPT: Final = "status IN ('pending', 'running', 'waiting')"


@dataclass(frozen=True)
class NewRun:
    """Everything that is committed with a new run. Values are canonical JSON bytes."""

    run_id: str
    workflow_name: str
    project_id: str
    snapshot: bytes
    input: bytes
    launch_options: bytes
    source: dict[str, str]
    frozen: bytes
    session_id: str
    title: str | None = None
    mode: str = "headless"


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


_SELECT_RUN: Final = """
    SELECT r.run_id, r.resource_id, a.revision, r.status, r.paused, q.status, q.available_at, q.consecutive_errors,
           q.error_code, l.generation, l.owner_id, l.token_hash, l.expires_at, q.origin_session_id, r.project_id,
           r.parent_run_id, r.root_run_id, q.created_at
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
    """Commit-ready rows of a new root run, queued and due now. Gives its revision (1).

    `ConflictError` when the id is taken.
    """
    if find(connection, new.run_id) is not None:
        raise ConflictError(f"a run {new.run_id!r} exists already")
    blobs.put_json_bytes(connection, new.frozen, now)
    _insert(connection, new, now, parent=None)
    return 1


def _insert(connection: sqlite3.Connection, new: NewRun, now: int, parent: RunRow | None) -> str:
    snapshot = blobs.put_json_bytes(connection, new.snapshot, now)
    given = blobs.put_json_bytes(connection, new.input, now)
    options = blobs.put_json_bytes(connection, new.launch_options, now)
    connection.execute(
        "INSERT OR IGNORE INTO workflow_definitions VALUES (?, ?, ?, ?)", (snapshot, new.workflow_name, snapshot, now)
    )
    resource_id = mutation.create_aggregate(connection, "run", new.run_id, now, revision=1)
    connection.execute(
        "INSERT INTO runs(run_id, resource_id, project_id, parent_run_id, root_run_id, lineage_kind, restart_number,"
        " definition_digest, workflow_ref, launch_options_hash, title, status, paused, input_hash, created_at,"
        " updated_at) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 'queued', 0, ?, ?, ?)",
        (
            new.run_id,
            resource_id,
            new.project_id,
            parent.run_id if parent else None,
            parent.root_run_id if parent else new.run_id,
            "continuation" if parent else None,
            snapshot,
            new.source["ref"],
            options,
            new.title,
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
    connection.execute("INSERT INTO run_bindings VALUES (?, ?, ?, ?)", (new.run_id, new.session_id, new.mode, now))
    connection.execute(
        "INSERT INTO run_queue(run_id, status, available_at, origin_session_id, created_at, updated_at)"
        " VALUES (?, 'queued', ?, ?, ?, ?)",
        (new.run_id, now, new.session_id, now, now),
    )
    mutation.record_event(connection, resource_id, 1, "run.queued", "session", new.session_id, {}, now)
    return resource_id


def create_continuation(connection: sqlite3.Connection, parent: RunRow, run_id: str, answer: bytes, now: int) -> None:
    """A run that goes on after a checkpoint: the parent's steps are carried, the last one's output is the answer.

    The parent must be waiting at a checkpoint; its queue row is done with this.
    """
    if parent.status != "waiting" or parent.queue_status != "parked":
        raise ConflictError(f"run {parent.run_id} waits for no answer (it is {parent.status})")
    last = connection.execute(
        "SELECT s.step_index, a.node_type FROM run_steps s JOIN node_attempts a USING (attempt_id)"
        " WHERE s.run_id = ? ORDER BY s.step_index DESC LIMIT 1",
        (parent.run_id,),
    ).fetchone()
    if last is None or last[1] != "checkpoint":
        raise ConflictError(f"run {parent.run_id} waits, but not at a checkpoint")
    row = connection.execute(
        "SELECT d.workflow_name, b.content, i.content, o.content, s.source_type, s.source_ref, s.source_revision,"
        " r.title, n.execution_mode FROM runs r JOIN workflow_definitions d USING (definition_digest)"
        " JOIN blobs b ON b.blob_hash = d.definition_hash JOIN blobs i ON i.blob_hash = r.input_hash"
        " JOIN blobs o ON o.blob_hash = r.launch_options_hash JOIN run_sources s ON s.run_id = r.run_id"
        " AND mount_path = '' JOIN run_bindings n ON n.run_id = r.run_id WHERE r.run_id = ?",
        (parent.run_id,),
    ).fetchone()
    connection.execute(
        "UPDATE run_queue SET status = 'done', finished_at = ?, updated_at = ? WHERE run_id = ?",
        (now, now, parent.run_id),
    )
    mutation.bump(connection, parent.resource_id, parent.revision, now)
    mutation.record_event(
        connection,
        parent.resource_id,
        parent.revision + 1,
        "run.queue_done_for_continuation",
        "session",
        parent.session_id,
        {"continuationRunId": run_id},
        now,
    )
    viewer.record(connection, parent.run_id, ("summary",), now)
    new = NewRun(
        run_id=run_id,
        workflow_name=row[0],
        project_id=parent.project_id,
        snapshot=row[1],
        input=row[2],
        launch_options=row[3],
        source={"type": row[4], "ref": row[5], "revision": row[6]},
        frozen=b"",
        session_id=parent.session_id,
        title=row[7],
        mode=row[8],
    )
    _insert(connection, new, now, parent)
    digest = blobs.put_json_bytes(connection, answer, now)
    connection.execute(
        "INSERT INTO run_steps SELECT ?, step_index, attempt_id, CASE step_index WHEN ? THEN ?"
        " ELSE output_override_hash END FROM run_steps WHERE run_id = ?",
        (run_id, last[0], digest, parent.run_id),
    )


@dataclass
class LaunchOptions:
    """What a run was started with beside its input, as its launch-options blob holds it."""

    source: str
    tags: list[str] = field(default_factory=list)

    def encode(self) -> bytes:
        """Canonical JSON; the source blob is named by its digest in hex."""
        return canonical_json.encode({"source": {"sha256": self.source}, "tags": self.tags})


def frozen_source(connection: sqlite3.Connection, run_id: str) -> bytes:
    """The bytes of the source blob that a run executes, whatever became of its file or cell since."""
    options = blobs.read_json(
        connection,
        connection.execute("SELECT launch_options_hash FROM runs WHERE run_id = ?", (run_id,)).fetchone()[0],
    )
    return blobs.read_json_bytes(connection, bytes.fromhex(options["source"]["sha256"]))


_STEPS: Final = """
    SELECT s.step_index, a.node_id, a.attempt_id, a.attempt_number, a.node_type, a.status,
           o.content, e.content, a.started_at, a.finished_at
    FROM run_steps s JOIN node_attempts a USING (attempt_id)
    LEFT JOIN blobs o ON o.blob_hash = coalesce(s.output_override_hash, a.output_hash)
    LEFT JOIN blobs e ON e.blob_hash = a.error_hash
    WHERE s.run_id = ? ORDER BY s.step_index
"""


def run_state(connection: sqlite3.Connection, run_id: str) -> dict[str, Any]:
    """What the engine needs to start a run or to go on: input, steps, and the node that is to be run (again)."""
    name, title, content = connection.execute(
        "SELECT d.workflow_name, r.title, b.content FROM runs r JOIN workflow_definitions d USING (definition_digest)"
        " JOIN blobs b ON b.blob_hash = r.input_hash WHERE r.run_id = ?",
        (run_id,),
    ).fetchone()
    steps = [
        {
            "index": row[0],
            "nodeId": row[1],
            "attemptId": row[2],
            "attemptNumber": row[3],
            "nodeType": row[4],
            "outcome": "ok" if row[5] == "completed" else row[5],
            "output": None if row[6] is None else canonical_json.decode(row[6]),
            "error": None if row[7] is None else row[7].decode(),
            "startedAt": row[8],
            "finishedAt": row[9],
        }
        for row in connection.execute(_STEPS, (run_id,))
    ]
    counts = dict(
        connection.execute(
            "SELECT node_id, max(attempt_number) FROM node_attempts WHERE run_id = ? GROUP BY node_id", (run_id,)
        )
    )
    return {
        "runId": run_id,
        "workflowName": name,
        "title": title,
        "input": canonical_json.decode(content),
        "steps": steps,
        "attemptCounts": counts,
        "pending": _pending(connection, run_id),
    }


def _pending(connection: sqlite3.Connection, run_id: str) -> dict[str, Any] | None:
    """The node whose newest attempt left no step: interrupted, or failed with a try left."""
    rows = connection.execute(
        "SELECT a.node_id, a.status, a.finished_at FROM node_attempts a WHERE a.run_id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM run_steps s WHERE s.run_id = ?1 AND s.attempt_id = a.attempt_id)"
        " AND a.rowid > coalesce((SELECT max(b.rowid) FROM run_steps s JOIN node_attempts b USING (attempt_id)"
        " WHERE s.run_id = ?1 AND b.run_id = ?1), 0) ORDER BY a.rowid",
        (run_id,),
    ).fetchall()
    if not rows:
        return None
    tries = sum(status in ("failed", "timed_out") for _, status, _ in rows)
    node_id, status, finished_at = rows[-1]
    return {"nodeId": node_id, "tries": tries, "failedAt": finished_at if status in ("failed", "timed_out") else None}
