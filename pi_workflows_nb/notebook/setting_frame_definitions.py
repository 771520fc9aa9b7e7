"""What the frames of settings, follow-ups and sources of runs show."""

from __future__ import annotations

from typing import Final

from .columns import Column
from .frame_shape import Frame, actor, blob, many, of_run, state

FOLLOW_UP_STATUS: Final = ("queued", "removed", "cancelled")
SOURCE_TYPE: Final = ("builtin", "file")

EVERY: Final = (
    Frame(
        name="settings",
        about="workflow_settings with resources; one row for each scope of settings, oldest first",
        source="workflow_settings s JOIN resources g USING (resource_id)",
        columns=(
            Column("scope_id", "text", "s.scope_id"),
            Column("run_id", "text", "s.active_run_id"),
            Column("origin_run_id", "text", "s.origin_run_id"),
            Column("mount_path", "text", "s.mount_path"),
            Column("invocation", "count", "s.invocation"),
            Column("change_number", "count", "g.revision"),
            Column("initial_digest", "digest", "s.initial_hash"),
            Column("current_digest", "digest", "s.current_hash"),
            *many("time", "created_at", "updated_at", of="s"),
            Column("aggregate_id", "text", "s.resource_id"),
        ),
        index=("scope_id",),
        order="s.created_at, s.rowid",
        run="s.active_run_id",
        project=of_run("s.active_run_id"),
        aggregate="s.resource_id",
        time="created_at",
        payloads=(blob("initial", "json", "s.initial_hash"), blob("current", "json", "s.current_hash")),
    ),
    Frame(
        name="setting_changes",
        about="workflow_setting_changes with workflow_settings; one row for each accepted change, oldest first",
        source="workflow_setting_changes c JOIN workflow_settings s USING (scope_id)",
        columns=(
            Column("change_id", "text", "c.change_id"),
            Column("scope_id", "text", "c.scope_id"),
            Column("run_id", "text", "s.active_run_id"),
            Column("mount_path", "text", "s.mount_path"),
            Column("change_number", "count", "c.change_number"),
            actor("c.actor_type"),
            *many("text", "actor_id", "source_type", "request_id", of="c"),
            Column("before_digest", "digest", "c.before_hash"),
            Column("after_digest", "digest", "c.after_hash"),
            Column("accepted_at", "time", "c.accepted_at"),
        ),
        index=("change_id",),
        order="c.accepted_at, c.rowid",
        run="s.active_run_id",
        project=of_run("s.active_run_id"),
        aggregate="s.resource_id",
        time="accepted_at",
        payloads=(
            blob("patch", "json", "c.patch_hash"),
            blob("before", "json", "c.before_hash"),
            blob("after", "json", "c.after_hash"),
        ),
    ),
    Frame(
        name="follow_ups",
        about="workflow_follow_ups; one row for each prompt queued for after a run, in their order",
        source="workflow_follow_ups f",
        columns=(
            *many("text", "follow_up_id", "run_id", of="f"),
            Column("order_number", "count", "f.order_number"),
            state("status", "f.status", FOLLOW_UP_STATUS),
            Column("session_id", "text", "f.target_session_id"),
            actor("f.actor_type"),
            *many("text", "actor_id", "source_type", "request_id", of="f"),
            *many("time", "created_at", "updated_at", of="f"),
            Column("aggregate_id", "text", "f.resource_id"),
        ),
        index=("follow_up_id",),
        order="f.created_at, f.run_id, f.order_number",
        run="f.run_id",
        project=of_run("f.run_id"),
        aggregate="f.resource_id",
        status="status",
        time="created_at",
        payloads=(blob("prompt", "message", "f.prompt_hash"), blob("reason", "message", "f.reason_hash")),
    ),
    Frame(
        name="sources",
        about="run_sources with runs; one row for each source of a run, the mounted ones after its own",
        source="run_sources s JOIN runs r USING (run_id)",
        columns=(
            *many("text", "run_id", "mount_path", of="s"),
            state("source_type", "s.source_type", SOURCE_TYPE),
            *many("text", "source_ref", "source_revision", of="s"),
            Column("created_at", "time", "r.created_at"),
        ),
        index=("run_id", "mount_path"),
        order="r.created_at, r.rowid, s.mount_path",
        run="s.run_id",
        project="r.project_id = ?",
        time="created_at",
    ),
)
