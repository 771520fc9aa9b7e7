"""What the frame of updates shows."""

from __future__ import annotations

from typing import Final

from .columns import Column
from .frame_shape import Frame, blob, many, of_run

EVERY: Final = (
    Frame(
        name="updates",
        about="workflow_updates with node_attempts; one row for each publish_update, oldest first",
        source="(SELECT w.*, w.rowid AS position, a.run_id, a.node_id, a.status AS attempt_status,"
        " lead(w.rowid) OVER (PARTITION BY a.run_id, w.update_type, w.update_key ORDER BY w.rowid) IS NULL AS current"
        " FROM node_attempts a JOIN workflow_updates w USING (attempt_id)) u",
        columns=(
            *many("text", "update_id", "run_id", "node_id", "attempt_id", of="u"),
            Column("update_seq", "count", "u.update_seq"),
            Column("type", "text", "u.update_type"),
            Column("key", "text", "u.update_key"),
            Column("current", "flag", "u.current"),
            Column("run_revision", "count", "u.run_revision"),
            Column("data_digest", "digest", "u.data_hash"),
            Column("recorded_at", "time", "u.recorded_at"),
        ),
        index=("update_id",),
        order="u.position",
        run="u.run_id",
        project=of_run("u.run_id"),
        node="u.node_id",
        time="recorded_at",
        payloads=(blob("data", "json", "u.data_hash"),),
    ),
)
