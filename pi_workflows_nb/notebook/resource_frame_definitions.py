"""What the frames of managed resources show."""

from __future__ import annotations

from typing import Final

from .columns import Column
from .frame_shape import Frame, blob, many, state

STATE: Final = ("settled", "queued", "reconciling")
CONDITION: Final = ("true", "false", "unknown")
CHILD_STATUS: Final = ("pending", "running", "waiting", "succeeded", "failed", "interrupted")

_RESOURCE: Final = "controller_resources c JOIN resources g USING (resource_id)"
_STATUS: Final = "JOIN blobs t ON t.blob_hash = c.status_hash"
_NAMES: Final = (
    Column("uid", "text", "c.uid"),
    Column("resource_manager", "text", "c.controller_name"),
    Column("key", "text", "c.resource_key"),
)
_PLACE: Final = (
    Column("project_id", "text", "c.project_id"),
    Column("aggregate_id", "text", "c.resource_id"),
)


def _in_status(path: str) -> str:
    return f"json_extract(CAST(t.content AS TEXT), '{path}')"


def _said(value: str) -> str:
    """The word for a condition's status, which is stored as a JSON boolean or the text `unknown`."""
    return f"CASE {value} WHEN 1 THEN 'true' WHEN 0 THEN 'false' WHEN 'unknown' THEN 'unknown' END"


_READY: Final = (
    "(SELECT json_extract(d.value, '$.status') FROM json_each(CAST(t.content AS TEXT), '$.conditions') d"
    " WHERE json_extract(d.value, '$.type') = 'Ready' LIMIT 1)"
)
_MOVED: Final = "julianday(json_extract(d.value, '$.lastTransitionTime'))"

EVERY: Final = (
    Frame(
        name="resources",
        about="controller_resources with resources, leases, controller_queue; one row a managed resource",
        source=f"{_RESOURCE} {_STATUS} LEFT JOIN leases l USING (resource_id)"
        " LEFT JOIN controller_queue q USING (controller_resource_id)",
        columns=(
            *_NAMES,
            state(
                "state",
                "CASE WHEN l.owner_type IS NOT NULL THEN 'reconciling' WHEN q.available_at IS NOT NULL THEN 'queued'"
                " ELSE 'settled' END",
                STATE,
            ),
            state("ready", _said(_READY), CONDITION),
            Column("generation", "count", "c.generation"),
            Column("observed_generation", "count", _in_status("$.observedGeneration")),
            Column("resource_version", "count", "g.revision"),
            Column("deletion_requested_at", "time", "c.deletion_requested_at"),
            Column(
                "finalizers",
                "text",
                "(SELECT group_concat(f.finalizer, ', ') FROM (SELECT finalizer FROM controller_finalizers z"
                " WHERE z.controller_resource_id = c.controller_resource_id ORDER BY position) f)",
            ),
            Column("available_at", "time", "q.available_at"),
            Column("consecutive_errors", "count", "ifnull(q.consecutive_errors, 0)"),
            *many("time", "created_at", "updated_at", of="c"),
            *_PLACE,
        ),
        index=("uid",),
        order="c.controller_name, c.resource_key, c.rowid",
        project="c.project_id = ?",
        aggregate="c.resource_id",
        status="state",
        manager="c.controller_name",
        time="created_at",
        payloads=(
            blob("spec", "json", "c.spec_hash"),
            blob("status", "json", "c.status_hash"),
            blob("error", "message", "q.last_error_hash"),
        ),
        search=("c.controller_name", "c.resource_key", "c.uid"),
    ),
    Frame(
        name="conditions",
        about="the conditions in the status of controller_resources; one row each",
        source=f"{_RESOURCE} {_STATUS}, json_each(CAST(t.content AS TEXT), '$.conditions') d",
        columns=(
            *_NAMES,
            Column("type", "text", "json_extract(d.value, '$.type')"),
            state("status", _said("json_extract(d.value, '$.status')"), CONDITION),
            Column("reason", "text", "json_extract(d.value, '$.reason')"),
            Column("message", "text", "json_extract(d.value, '$.message')"),
            Column("observed_generation", "count", "json_extract(d.value, '$.observedGeneration')"),
            Column("generation", "count", "c.generation"),
            Column("last_transition_time", "time", f"CAST(round(({_MOVED} - 2440587.5) * 86400000) AS INTEGER)"),
            *_PLACE,
        ),
        index=("uid", "type"),
        order="c.controller_name, c.resource_key, c.rowid, d.id",
        project="c.project_id = ?",
        aggregate="c.resource_id",
        status="status",
        manager="c.controller_name",
        time="last_transition_time",
    ),
    Frame(
        name="resource_queue",
        about="controller_queue with controller_resources and leases; when each managed resource is looked at next",
        source="controller_queue q JOIN controller_resources c USING (controller_resource_id)"
        " LEFT JOIN leases l USING (resource_id)",
        columns=(
            *_NAMES,
            Column("available_at", "time", "q.available_at"),
            Column("queue_version", "count", "q.queue_version"),
            Column("consecutive_errors", "count", "q.consecutive_errors"),
            Column("held", "flag", "l.owner_type IS NOT NULL"),
            Column("owner_id", "text", "l.owner_id"),
            Column("lease_generation", "count", "l.generation"),
            Column("expires_at", "time", "l.expires_at"),
            *many("time", "created_at", "updated_at", of="q"),
            *_PLACE,
        ),
        index=("uid",),
        order="q.available_at, c.controller_name, c.resource_key",
        project="c.project_id = ?",
        aggregate="c.resource_id",
        manager="c.controller_name",
        time="available_at",
        payloads=(blob("error", "message", "q.last_error_hash"),),
    ),
    Frame(
        name="child_workflows",
        about="controller_workflows with controller_resources; one row a request of a managed resource for a run",
        source="controller_workflows w JOIN controller_resources c USING (controller_resource_id)",
        columns=(
            Column("request_id", "text", "w.request_id"),
            *_NAMES,
            Column("request_key", "text", "w.request_key"),
            Column("workflow", "text", "w.workflow_name"),
            state("status", "w.status", CHILD_STATUS),
            Column("attempt_count", "count", "w.attempt_count"),
            Column("run_id", "text", "coalesce(w.run_id, w.reserved_run_id)"),
            *many("time", "created_at", "updated_at", of="w"),
            *_PLACE,
        ),
        index=("request_id",),
        order="w.created_at, w.rowid",
        run="coalesce(w.run_id, w.reserved_run_id)",
        project="c.project_id = ?",
        aggregate="c.resource_id",
        status="status",
        workflow="w.workflow_name",
        manager="c.controller_name",
        time="created_at",
        payloads=(blob("error", "message", "w.error_hash"),),
    ),
)
