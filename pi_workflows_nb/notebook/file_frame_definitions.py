"""What the frames of a whole file show: commands, definitions, projects, stored values."""

from __future__ import annotations

from typing import Final

from .columns import Column
from .frame_shape import Frame, Payload, blob, many, of_run, state

COMMAND_OUTCOME: Final = ("accepted", "adopted", "rejected", "conflict", "notFound", "claimLost", "unavailable")

EVERY: Final = (
    Frame(
        name="commands",
        about="host_commands; the receipt of every command that changed something, oldest first",
        source="host_commands c",
        columns=(
            *many("text", "request_id", "client_id", "operation", "idempotency_key", "run_id", of="c"),
            Column("revision", "count", "c.accepted_revision"),
            state("outcome", "c.outcome", COMMAND_OUTCOME),
            Column("server_epoch", "count", "c.host_epoch"),
            *many("time", "created_at", "completed_at", of="c"),
        ),
        index=("request_id",),
        order="c.created_at, c.rowid",
        run="c.run_id",
        project=of_run("c.run_id"),
        status="outcome",
        time="created_at",
        payloads=(
            blob("receipt", "json", "c.receipt_hash"),
            blob("error", "message", "c.error_hash"),
        ),
    ),
    Frame(
        name="definitions",
        about="workflow_definitions; every graph that a run was started with, oldest first",
        source="workflow_definitions d LEFT JOIN (SELECT definition_digest, count(*) AS runs FROM runs GROUP BY 1) c"
        " USING (definition_digest)",
        columns=(
            Column("definition_digest", "digest", "d.definition_digest"),
            Column("workflow", "text", "d.workflow_name"),
            Column("runs", "count", "ifnull(c.runs, 0)"),
            Column("created_at", "time", "d.created_at"),
        ),
        index=("definition_digest",),
        order="d.created_at, d.rowid",
        project="d.definition_digest IN (SELECT definition_digest FROM runs WHERE project_id = ?)",
        workflow="d.workflow_name",
        time="created_at",
        payloads=(blob("snapshot", "json", "d.definition_hash"),),
    ),
    Frame(
        name="projects",
        about="projects; every folder that runs or resources of this file belong to",
        source="projects p LEFT JOIN (SELECT project_id, count(*) AS runs FROM runs GROUP BY 1) c USING (project_id)",
        columns=(
            Column("project_id", "text", "p.project_id"),
            Column("path", "text", "p.canonical_path"),
            Column("runs", "count", "ifnull(c.runs, 0)"),
            Column("created_at", "time", "p.created_at"),
        ),
        index=("project_id",),
        order="p.created_at, p.rowid",
        time="created_at",
    ),
    Frame(
        name="blobs",
        about="blobs; every stored value under the SHA-256 of its bytes, oldest first. Blobs belong to no project",
        source="blobs b",
        columns=(
            Column("digest", "digest", "b.blob_hash"),
            Column("media_type", "text", "b.media_type"),
            Column("byte_length", "count", "b.byte_length"),
            Column("created_at", "time", "b.created_at"),
        ),
        index=("digest",),
        order="b.created_at, b.rowid",
        time="created_at",
        payloads=(
            Payload(
                Column(
                    "content",
                    "content",
                    "CASE b.media_type WHEN 'application/json' THEN b.content ELSE CAST(b.content AS TEXT) END",
                )
            ),
        ),
    ),
)
