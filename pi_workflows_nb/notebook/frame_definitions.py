"""What each frame shows: its source in the file, its columns, its index, and what its filters compare with.

Names of columns follow the words of the system where the file keeps older ones (`server` for `host`, `runner` for
`worker`, `aggregate` for `resource`). The same definitions make the SQL views `runs_v`, `steps_v`, ….
"""

from __future__ import annotations

from typing import Final

from . import (
    file_frame_definitions,
    resource_frame_definitions,
    session_frame_definitions,
    setting_frame_definitions,
    update_frame_definitions,
)
from .columns import Column
from .frame_shape import OLDER_ACTORS, Frame, actor, blob, many, of_run, state

RUN_STATUS: Final = ("queued", "running", "waiting", "completed", "failed", "timed_out", "cancelled")
QUEUE_STATUS: Final = ("queued", "starting", "running", "parked", "done", "failed", "cancelled")
ATTEMPT_STATUS: Final = (
    "pending",
    "running",
    "waiting",
    "interrupted",
    "completed",
    "failed",
    "timed_out",
    "cancelled",
)
OUTCOME: Final = ("ok", "failed", "timed_out", "cancelled")
EFFECT_STATUS: Final = ("pending", "applying", "applied", "rejected", "ambiguous", "cancelled")
EFFECT_OUTCOME: Final = ("applied", "rejected", "ambiguous", "interrupted")
RUNNER_STATUS: Final = (
    "starting",
    "ready",
    "running",
    "exited",
    "cancelled",
    "timedOut",
    "crashed",
    "claimLost",
    "orphaned",
)
OWNER: Final = ("session", "server", "resource_manager", "channel", "system")
AGGREGATE: Final = ("run", "session", "decision", "managed_resource", "effect", "channel", "settings", "follow_up")
SCOPE: Final = ("run", "managed_resource", "channel", "system")
_OLDER_AGGREGATES: Final = {"controller": "managed_resource"}

# Aggregates that belong to a project, over one parameter: the project's id.
PROJECT_AGGREGATES: Final = """
    WITH roots(resource_id, run_id) AS (
        SELECT resource_id, run_id FROM runs WHERE project_id = ?
        UNION ALL SELECT resource_id, NULL FROM controller_resources WHERE project_id = ?)
    SELECT resource_id FROM roots
    UNION ALL SELECT e.resource_id FROM effects e JOIN roots ON roots.resource_id = e.source_resource_id
    UNION ALL SELECT s.resource_id FROM workflow_settings s JOIN roots ON roots.run_id = s.origin_run_id
    UNION ALL SELECT f.resource_id FROM workflow_follow_ups f JOIN roots USING (run_id)
    UNION ALL SELECT d.resource_id FROM human_decisions d JOIN roots USING (run_id)
"""


_ENDED: Final = "r.status IN ('completed', 'failed', 'timed_out', 'cancelled')"
_EVERY: Final = (
    Frame(
        name="runs",
        about="runs with workflow_definitions, run_bindings, run_queue; one row a run, newest first",
        source="runs r JOIN workflow_definitions d USING (definition_digest)"
        " LEFT JOIN run_bindings n USING (run_id) LEFT JOIN run_queue q USING (run_id)",
        columns=(
            Column("run_id", "text", "r.run_id"),
            Column("workflow", "text", "d.workflow_name"),
            Column("title", "text", "r.title"),
            state("status", "r.status", RUN_STATUS),
            state("queue_status", "q.status", QUEUE_STATUS),
            Column("paused", "flag", "r.paused"),
            Column("status_detail", "text", "r.status_detail"),
            Column("steps", "count", "(SELECT max(step_index) + 1 FROM run_steps s WHERE s.run_id = r.run_id)"),
            Column("created_at", "time", "r.created_at"),
            Column("started_at", "time", "q.started_at"),
            Column("waiting_since", "time", "CASE WHEN r.status = 'waiting' THEN r.finished_at END"),
            Column("finished_at", "time", f"CASE WHEN {_ENDED} THEN r.finished_at END"),
            Column("duration", "duration", f"CASE WHEN {_ENDED} THEN r.finished_at - r.created_at END"),
            Column("updated_at", "time", "r.updated_at"),
            Column(
                "tags",
                "text",
                "(SELECT group_concat(t.value, ', ') FROM blobs o, json_each(CAST(o.content AS TEXT), '$.tags') t"
                " WHERE o.blob_hash = r.launch_options_hash)",
            ),
            state("mode", "n.execution_mode", ("interactive", "headless")),
            Column("session_id", "text", "CASE n.execution_mode WHEN 'interactive' THEN n.origin_session_id END"),
            Column("project_id", "text", "r.project_id"),
            Column(
                "continued_by",
                "text",
                "(SELECT c.run_id FROM runs c WHERE c.parent_run_id = r.run_id AND c.lineage_kind = 'continuation')",
            ),
            Column("parent_run_id", "text", "r.parent_run_id"),
            Column("root_run_id", "text", "r.root_run_id"),
            state("lineage", "r.lineage_kind", ("continuation", "restart")),
            Column("restart_number", "count", "r.restart_number"),
            Column("definition_digest", "digest", "r.definition_digest"),
            Column("workflow_source", "text", "r.workflow_ref"),
        ),
        index=("run_id",),
        order="r.created_at DESC, r.rowid DESC",
        run="r.run_id",
        project="r.project_id = ?",
        status="status",
        workflow="d.workflow_name",
        time="created_at",
        payloads=(
            blob("input", "json", "r.input_hash"),
            blob("output", "json", "r.final_output_hash"),
            blob("error", "message", "r.error_hash"),
            blob("launch_options", "json", "r.launch_options_hash"),
        ),
        search=("r.run_id", "d.workflow_name", "r.title"),
    ),
    Frame(
        name="steps",
        about="run_steps with node_attempts; one row a finished step, in the order of the run."
        " A continuation starts with the steps carried from its parent",
        source="run_steps s JOIN node_attempts a USING (attempt_id)",
        columns=(
            Column("run_id", "text", "s.run_id"),
            Column("step", "count", "s.step_index"),
            Column("node_id", "text", "a.node_id"),
            Column("node_type", "text", "a.node_type"),
            state("outcome", "a.status", OUTCOME, {"completed": "ok"}),
            Column("attempt_number", "count", "a.attempt_number"),
            Column("started_at", "time", "a.started_at"),
            Column("finished_at", "time", "a.finished_at"),
            Column("duration", "duration", "a.finished_at - a.started_at"),
            Column("attempt_id", "text", "s.attempt_id"),
            Column("carried", "flag", "s.run_id <> a.run_id"),
            Column("output_digest", "digest", "coalesce(s.output_override_hash, a.output_hash)"),
        ),
        index=("run_id", "step"),
        order="s.run_id, s.step_index",
        run="s.run_id",
        project=of_run("s.run_id"),
        status="outcome",
        node="a.node_id",
        time="started_at",
        payloads=(
            blob("output", "json", "coalesce(s.output_override_hash, a.output_hash)"),
            blob("error", "message", "a.error_hash"),
        ),
    ),
    Frame(
        name="attempts",
        about="node_attempts; one row for each execution of a node, oldest first",
        source="node_attempts a",
        columns=(
            *many("text", "attempt_id", "run_id", "node_id", of="a"),
            Column("attempt_number", "count", "a.attempt_number"),
            Column("node_type", "text", "a.node_type"),
            state("status", "a.status", ATTEMPT_STATUS),
            *many("time", "started_at", "deadline_at", "finished_at", of="a"),
            Column("duration", "duration", "a.finished_at - a.started_at"),
            Column("output_digest", "digest", "a.output_hash"),
            Column("settings_scope_id", "text", "a.settings_scope_id"),
            Column("settings_change_number", "count", "a.settings_change_number"),
            *many("time", "created_at", "updated_at", of="a"),
        ),
        index=("attempt_id",),
        order="a.created_at, a.rowid",
        run="a.run_id",
        project=of_run("a.run_id"),
        status="status",
        node="a.node_id",
        time="started_at",
        payloads=(
            blob("prompt", "message", "a.prompt_hash"),
            blob("output", "json", "a.output_hash"),
            blob("receipt", "json", "a.receipt_hash"),
            blob("error", "message", "a.error_hash"),
        ),
    ),
    Frame(
        name="events",
        about="events; the immutable history of every aggregate, oldest first",
        source="events e",
        columns=(
            Column("event_id", "text", "e.event_id"),
            Column("event_seq", "count", "e.event_seq"),
            state(
                "aggregate_type",
                "substr(e.resource_id, 1, instr(e.resource_id, '-') - 1)",
                AGGREGATE,
                _OLDER_AGGREGATES,
            ),
            Column("aggregate_id", "text", "e.resource_id"),
            Column("revision", "count", "e.resource_revision"),
            Column("event_type", "text", "e.event_type"),
            actor("e.actor_type"),
            Column("actor_id", "text", "e.actor_id"),
            Column("lease_generation", "count", "e.lease_generation"),
            Column("recorded_at", "time", "e.recorded_at"),
        ),
        index=("event_id",),
        order="e.event_seq",
        aggregate="e.resource_id",
        time="recorded_at",
        payloads=(blob("payload", "json", "e.payload_hash"),),
    ),
    Frame(
        name="effects",
        about="effects; one row for each recorded external action, oldest first",
        source="effects e LEFT JOIN runs r ON r.resource_id = e.source_resource_id",
        columns=(
            Column("effect_id", "text", "e.effect_id"),
            Column("run_id", "text", "r.run_id"),
            *many("text", "effect_type", "idempotency_key", of="e"),
            state("status", "e.status", EFFECT_STATUS),
            Column("attempt_count", "count", "e.attempt_count"),
            Column("external_ref", "text", "e.external_ref"),
            *many("time", "next_attempt_at", "created_at", "updated_at", "settled_at", of="e"),
            state("owner_scope", "e.owner_scope", SCOPE, _OLDER_AGGREGATES),
            Column("source_aggregate_id", "text", "e.source_resource_id"),
            Column("source_revision", "count", "e.source_revision"),
            Column("aggregate_id", "text", "e.resource_id"),
        ),
        index=("effect_id",),
        order="e.created_at, e.rowid",
        run="r.run_id",
        aggregate="e.resource_id",
        status="status",
        time="created_at",
        payloads=(
            blob("request", "json", "e.payload_hash"),
            blob("result", "json", "e.result_hash"),
            blob("error", "message", "e.error_hash"),
        ),
    ),
    Frame(
        name="effect_attempts",
        about="effect_attempts with effects; one row for each try of an effect",
        source="effect_attempts t JOIN effects e USING (effect_id)"
        " LEFT JOIN runs r ON r.resource_id = e.source_resource_id",
        columns=(
            Column("effect_id", "text", "t.effect_id"),
            Column("attempt_number", "count", "t.attempt_number"),
            Column("run_id", "text", "r.run_id"),
            state("outcome", "t.outcome", EFFECT_OUTCOME),
            *many("time", "started_at", "finished_at", of="t"),
            Column("duration", "duration", "t.finished_at - t.started_at"),
            Column("owner_id", "text", "t.owner_id"),
            Column("lease_generation", "count", "t.lease_generation"),
        ),
        index=("effect_id", "attempt_number"),
        order="t.started_at, t.rowid",
        run="r.run_id",
        aggregate="e.resource_id",
        status="outcome",
        time="started_at",
        payloads=(
            blob("result", "json", "t.result_hash"),
            blob("error", "message", "t.error_hash"),
        ),
    ),
    Frame(
        name="leases",
        about="leases with resources; who holds the claim of each aggregate, if anybody",
        source="leases l JOIN resources g USING (resource_id)",
        columns=(
            Column("aggregate_id", "text", "l.resource_id"),
            state("aggregate_type", "g.resource_type", AGGREGATE, _OLDER_AGGREGATES),
            Column("aggregate_key", "text", "g.aggregate_key"),
            Column("revision", "count", "g.revision"),
            Column("generation", "count", "l.generation"),
            Column("held", "flag", "l.owner_type IS NOT NULL"),
            state("owner_type", "l.owner_type", OWNER, OLDER_ACTORS),
            Column("owner_id", "text", "l.owner_id"),
            *many("time", "acquired_at", "heartbeat_at", "expires_at", of="l"),
        ),
        index=("aggregate_id",),
        order="g.created_at, l.rowid",
        aggregate="l.resource_id",
        time="acquired_at",
    ),
    Frame(
        name="runners",
        about="run_workers; one row for each child process that executed a generation of a run, oldest first",
        source="run_workers w",
        columns=(
            Column("runner_epoch", "text", "w.worker_epoch"),
            Column("run_id", "text", "w.run_id"),
            Column("generation", "count", "w.generation"),
            Column("server_epoch", "count", "w.host_epoch"),
            state("status", "w.status", RUNNER_STATUS),
            Column("pid", "count", "w.pid"),
            *many("time", "started_at", "ready_at", "finished_at", of="w"),
            Column("duration", "duration", "w.finished_at - w.started_at"),
            Column("exit_code", "count", "w.exit_code"),
            Column("signal", "text", "w.signal"),
            Column("process_start_identity", "text", "w.process_start_identity"),
        ),
        index=("runner_epoch",),
        order="w.started_at, w.rowid",
        run="w.run_id",
        project=of_run("w.run_id"),
        status="status",
        time="started_at",
        payloads=(
            blob("envelope", "json", "w.launch_envelope_hash"),
            blob("diagnostic", "message", "w.diagnostic_hash"),
        ),
    ),
    Frame(
        name="run_queue",
        about="run_queue; when each run is due, and why it is not going on",
        source="run_queue q LEFT JOIN run_bindings n USING (run_id)",
        columns=(
            Column("run_id", "text", "q.run_id"),
            state("status", "q.status", QUEUE_STATUS),
            Column("available_at", "time", "q.available_at"),
            Column("consecutive_errors", "count", "q.consecutive_errors"),
            Column("error_code", "text", "q.error_code"),
            *many("time", "created_at", "updated_at", "started_at", "finished_at", of="q"),
            Column("session_id", "text", "CASE n.execution_mode WHEN 'interactive' THEN q.origin_session_id END"),
            Column("affinity_server_id", "text", "q.affinity_runner_id"),
        ),
        index=("run_id",),
        order="q.available_at, q.created_at, q.rowid",
        run="q.run_id",
        project=of_run("q.run_id"),
        status="status",
        time="created_at",
        payloads=(blob("error", "message", "q.error_hash"),),
    ),
)

FRAMES: Final = {
    frame.name: frame
    for frames in (
        _EVERY,
        update_frame_definitions.EVERY,
        setting_frame_definitions.EVERY,
        session_frame_definitions.EVERY,
        resource_frame_definitions.EVERY,
        file_frame_definitions.EVERY,
    )
    for frame in frames
}
