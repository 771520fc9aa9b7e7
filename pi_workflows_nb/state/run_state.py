"""From where a run goes on, as its runner is told: input, steps, and the node that is to be run (again).

Values are passed through as they are stored, and large ones by their digest: nothing here reads what a value says.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec import Raw

from ..wire import canonical_json
from ..wire.runner_messages import RECENT_MS, Passed, Pending, Published, RunState, Step
from . import blobs

INLINE_BYTES: Final = 16 << 10
"""What one value may take of the frame; larger ones are fetched on their own."""

_STEPS: Final = """
    SELECT s.step_index, a.node_id, a.attempt_id, a.attempt_number, a.node_type, a.status,
           e.content, a.started_at, a.finished_at, o.blob_hash, o.byte_length, o.media_type,
           CASE WHEN o.byte_length <= ? THEN o.content END
    FROM run_steps s JOIN node_attempts a USING (attempt_id)
    LEFT JOIN blobs o ON o.blob_hash = coalesce(s.output_override_hash, a.output_hash)
    LEFT JOIN blobs e ON e.blob_hash = a.error_hash
    WHERE s.run_id = ? ORDER BY s.step_index
"""


_COMPOSED: Final = """
    SELECT instr(b.content, '"composition":{') FROM runs r JOIN workflow_definitions d USING (definition_digest)
    JOIN blobs b ON b.blob_hash = d.definition_hash WHERE r.run_id = ?
"""
_PASSAGES: Final = """
    WITH RECURSIVE chain(run_id, resource_id, parent_run_id, lineage_kind) AS (
        SELECT run_id, resource_id, parent_run_id, lineage_kind FROM runs WHERE run_id = ?
        UNION ALL SELECT r.run_id, r.resource_id, r.parent_run_id, r.lineage_kind FROM runs r
        JOIN chain c ON c.lineage_kind = 'continuation' AND r.run_id = c.parent_run_id)
    SELECT e.event_type, b.content FROM chain JOIN events e USING (resource_id)
    JOIN blobs b ON b.blob_hash = e.payload_hash
    WHERE e.event_type IN ('include_entered', 'include_exited') ORDER BY e.event_seq
"""


_PUBLISHED: Final = """
    SELECT u.update_type, u.update_key, count(*) FILTER (WHERE u.recorded_at > ?)
    FROM node_attempts a JOIN workflow_updates u USING (attempt_id) WHERE a.run_id = ? GROUP BY 1, 2
"""


def run_state(connection: sqlite3.Connection, run_id: str, now: int) -> RunState:
    """What the engine needs to start a run or to go on; steps of earlier runs of the chain are the run's own."""
    name, title, given = connection.execute(
        "SELECT d.workflow_name, r.title, r.input_hash FROM runs r JOIN workflow_definitions d USING"
        " (definition_digest) WHERE r.run_id = ?",
        (run_id,),
    ).fetchone()
    steps = [
        Step(
            index=row[0],
            node_id=row[1],
            attempt_id=row[2],
            attempt_number=row[3],
            node_type=row[4],
            outcome="ok" if row[5] == "completed" else row[5],
            error=None if row[6] is None else row[6].decode(),
            started_at=row[7],
            finished_at=row[8],
            output=None if row[9] is None else blobs.value(*row[9:]),
        )
        for row in connection.execute(_STEPS, (INLINE_BYTES, run_id))
    ]
    counts = dict(
        connection.execute(
            "SELECT node_id, max(attempt_number) FROM node_attempts WHERE run_id = ? GROUP BY node_id", (run_id,)
        )
    )
    return RunState(
        attempt_counts=Raw(canonical_json.encode(counts)),
        input=blobs.value_of(connection, given, INLINE_BYTES),
        passages=_passages(connection, run_id),
        pending=_pending(connection, run_id),
        run_id=run_id,
        steps=steps,
        title=title,
        updates=_published(connection, run_id, now),
        workflow_name=name,
    )


def _published(connection: sqlite3.Connection, run_id: str, now: int) -> Published | None:
    rows = connection.execute(_PUBLISHED, (now - RECENT_MS, run_id)).fetchall()
    return Published([(kind, key) for kind, key, _ in rows], sum(row[2] for row in rows)) if rows else None


def _passages(connection: sqlite3.Connection, run_id: str) -> list[Passed]:
    """The ways into mounted workflows and out of them, in this run and in those that it continues."""
    if not connection.execute(_COMPOSED, (run_id,)).fetchone()[0]:
        return []
    found = []
    for event, content in connection.execute(_PASSAGES, (run_id,)):
        said = canonical_json.decode(content)["payload"]
        value = canonical_json.encode(said["value"]).decode()
        found.append(Passed(event, said["mountPath"], said["steps"], value))
    return found


def _pending(connection: sqlite3.Connection, run_id: str) -> Pending | None:
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
    return Pending(failed_at=finished_at if status in ("failed", "timed_out") else None, node_id=node_id, tries=tries)
