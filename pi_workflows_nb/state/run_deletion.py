"""Deleting a run that led to nothing, with everything that is its own, its history too.

Runs that others hang on, or that touched the world in a way that is not settled, stay; whole chains leave when they are
old (retention).
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire.errors import ConflictError
from . import places
from .runs import RunRow

_REASONS: Final = {
    "it continues or restarts another run": "SELECT 1 FROM runs WHERE run_id = ?1 AND parent_run_id IS NOT NULL",
    "another run follows it": """
        SELECT 1 FROM runs WHERE (parent_run_id = ?1 OR root_run_id = ?1) AND run_id <> ?1""",
    "it is the child workflow of a managed resource": """
        SELECT 1 FROM controller_workflows WHERE run_id = ?1 OR reserved_run_id = ?1""",
    "its runner lives": """
        SELECT 1 FROM run_workers WHERE run_id = ?1 AND status IN ('starting', 'ready', 'running')""",
    "an effect of it is not settled": """
        SELECT 1 FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id
        WHERE r.run_id = ?1 AND e.status IN ('pending', 'applying', 'ambiguous')""",
}
_OWNED: Final = """
    SELECT resource_id FROM runs WHERE run_id = ?1
    UNION ALL SELECT e.resource_id FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id
      WHERE r.run_id = ?1
    UNION ALL SELECT resource_id FROM workflow_settings WHERE origin_run_id = ?1
    UNION ALL SELECT resource_id FROM workflow_follow_ups WHERE run_id = ?1
    UNION ALL SELECT resource_id FROM human_decisions WHERE run_id = ?1
    UNION ALL SELECT resource_id FROM session_segments WHERE run_id = ?1
"""


def delete(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """Delete a run; its place in its session goes to the next. `ConflictError` says why it must stay."""
    for reason, query in _REASONS.items():
        if connection.execute(query, (run.run_id,)).fetchone() is not None:
            raise ConflictError(f"run {run.run_id} cannot be deleted: {reason}")
    owned = connection.execute(_OWNED, (run.run_id,)).fetchall()
    connection.executemany("DELETE FROM events WHERE resource_id = ?", owned)
    connection.execute("DELETE FROM effects WHERE source_resource_id = ?", (run.resource_id,))
    connection.execute("DELETE FROM runs WHERE run_id = ?", (run.run_id,))
    connection.executemany("DELETE FROM resources WHERE resource_id = ?", owned)
    places.pass_on(connection, run.session_id, now)
