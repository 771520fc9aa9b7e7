"""Workflows that managed resources ask for: one child for each resource and request key.

A child is recorded before its run is launched, with the id that the run will have; the run's end is told without a
claim, and wakes the resource that waits for it.

Every function works in the caller's transaction. Times are in milliseconds since the epoch.
"""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ..wire import canonical_json, identities
from ..wire.errors import ConflictError, ManagedResourceError, NotFoundError, WorkflowRequestConflictError
from . import blobs, managed_resources
from .managed_resources import ResourceClaim
from .resource_values import require_text

ChildState = Literal["pending", "running", "waiting", "succeeded", "failed", "interrupted"]

_SELECT: Final = """
    SELECT w.request_id, c.uid, w.request_key, w.workflow_name, w.input_fingerprint,
           coalesce(w.run_id, w.reserved_run_id), w.status, w.attempt_count, x.content
    FROM controller_workflows w JOIN controller_resources c USING (controller_resource_id)
    LEFT JOIN blobs x ON x.blob_hash = w.error_hash
"""
_BY_KEY: Final = f"{_SELECT} WHERE w.controller_resource_id = ? AND w.request_key = ?"
_BY_ID: Final = f"{_SELECT} WHERE w.request_id = ? AND c.project_id = ?"
_LIST: Final = f"""{_SELECT} WHERE (?1 IS NULL OR c.project_id = ?1) AND (?2 IS NULL OR c.uid = ?2)
    ORDER BY w.created_at, w.request_id"""
_INSERT: Final = """
    INSERT INTO controller_workflows(request_id, controller_resource_id, request_key, workflow_name, input_fingerprint,
      status, attempt_count, created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?)
"""
# A run's row may come later than its id.
_UPDATE: Final = """
    UPDATE controller_workflows SET reserved_run_id = coalesce(:run, reserved_run_id),
      run_id = iif(:run IS NULL, run_id, (SELECT run_id FROM runs WHERE run_id = :run)),
      status = :state, attempt_count = coalesce(:attempt, attempt_count), error_hash = :error, updated_at = :now
    WHERE request_id = :request
"""
_COMPLETE: Final = """
    UPDATE controller_workflows SET
      run_id = coalesce((SELECT run_id FROM runs WHERE run_id = :run), run_id),
      status = :state, attempt_count = coalesce(:attempt, attempt_count), error_hash = :error, updated_at = :now
    WHERE request_id = :request
"""


@dataclass(frozen=True)
class ChildWorkflow:
    """One workflow that a resource asked for; `run_id` is None until one is reserved."""

    request_id: str
    resource_uid: str
    request_key: str
    workflow: str
    input_fingerprint: bytes
    run_id: str | None
    state: str
    attempt: int
    error: str | None


def reserve(
    connection: sqlite3.Connection,
    project_id: str,
    resource_uid: str,
    request_key: str,
    claim: ResourceClaim,
    *,
    workflow: str,
    input_fingerprint: bytes,
    now: int,
) -> tuple[ChildWorkflow, bool]:
    """Record a child, or adopt the one of that key; tells whether it is new. The fingerprint has 32 bytes.

    `WorkflowRequestConflictError` when the key stands for another workflow or input.
    """
    source = managed_resources.require_row_by_uid(connection, project_id, resource_uid)
    managed_resources.require_claim(source, claim, now)
    require_text(request_key, "a request key")
    known = connection.execute(_BY_KEY, (source.row_id, request_key)).fetchone()
    if known is not None:
        child = _child(known)
        if (child.workflow, child.input_fingerprint) != (workflow, input_fingerprint):
            what = "input" if child.workflow == workflow else f"workflow ({child.workflow}, not {workflow})"
            raise WorkflowRequestConflictError(
                f"the request {request_key!r} of {source.key!r} stands for another {what}:"
                " another child needs a key of its own"
            )
        return child, False
    if len(input_fingerprint) != 32:
        raise ManagedResourceError(f"a fingerprint has 32 bytes, not {len(input_fingerprint)}")
    request_id = str(uuid.uuid4())
    connection.execute(
        _INSERT,
        (request_id, source.row_id, request_key, require_text(workflow, "a workflow"), input_fingerprint, now, now),
    )
    return read(connection, project_id, request_id), True


def read(connection: sqlite3.Connection, project_id: str, request_id: str) -> ChildWorkflow:
    """A child of a project; `NotFoundError` where there is none, or its resource is gone."""
    row = connection.execute(_BY_ID, (require_text(request_id, "a request"), project_id)).fetchone()
    if row is None:
        raise NotFoundError(f"no child workflow {request_id!r} in this project")
    return _child(row)


def update(
    connection: sqlite3.Connection,
    project_id: str,
    request_id: str,
    claim: ResourceClaim,
    *,
    state: ChildState,
    run_id: str | None,
    attempt: int | None,
    error: str | None,
    now: int,
) -> ChildWorkflow:
    """Say how a child stands, under the live claim of its resource.

    None leaves the run and the attempt; the error replaces the one before, None takes it away.
    """
    change = _change(request_id, state, run_id, attempt)
    child = read(connection, project_id, request_id)
    source = managed_resources.require_row_by_uid(connection, project_id, child.resource_uid)
    managed_resources.require_claim(source, claim, now)
    connection.execute(_UPDATE, {**change, "error": _error(connection, error, now), "now": now})
    return read(connection, project_id, request_id)


def complete(
    connection: sqlite3.Connection,
    project_id: str,
    request_id: str,
    *,
    state: ChildState,
    run_id: str | None,
    attempt: int | None,
    error: str | None,
    now: int,
) -> ChildWorkflow:
    """The run of a child has ended, or waits: note it in its resource, whose next pass is due now. Needs no claim.

    `ConflictError` for a child that is still to run, and for a run that is not the child's.
    """
    change = _change(request_id, state, run_id, attempt)
    if state in ("pending", "running"):
        raise ConflictError(f"a child workflow that is {state} is not complete")
    child = read(connection, project_id, request_id)
    if run_id is not None and child.run_id is not None and run_id != child.run_id:
        raise ConflictError(f"the run of the child {child.request_key!r} is {child.run_id}, not {run_id}")
    source = managed_resources.require_row_by_uid(connection, project_id, child.resource_uid)
    connection.execute(_COMPLETE, {**change, "error": _error(connection, error, now), "now": now})
    managed_resources.enqueue_row(connection, source.row_id, now, now)
    child = read(connection, project_id, request_id)
    payload = canonical_json.encode({"requestId": request_id, "runId": child.run_id, "state": state})
    managed_resources.note_change(connection, source, "workflow_state_changed", payload, now, actor="system")
    return child


def list_all(connection: sqlite3.Connection, project_id: str | None, resource_uid: str | None) -> list[ChildWorkflow]:
    """The children of the resources of a project, or of all, or of one resource, oldest first."""
    return [_child(row) for row in connection.execute(_LIST, (project_id, resource_uid)).fetchall()]


def _change(request_id: str, state: ChildState, run_id: str | None, attempt: int | None) -> dict[str, Any]:
    if state not in get_args(ChildState):
        raise ManagedResourceError(f"a child workflow is {', '.join(get_args(ChildState))}, not {state!r}")
    if run_id is not None and not identities.RUN_ID.match(run_id):
        raise ManagedResourceError(f"{run_id!r} is no id of a run")
    if attempt is not None and attempt < 0:
        raise ManagedResourceError(f"attempts are counted from 0, not {attempt}")
    return {"request": request_id, "state": state, "run": run_id, "attempt": attempt}


def _error(connection: sqlite3.Connection, error: str | None, now: int) -> bytes | None:
    return None if error is None else blobs.put_text(connection, identities.cap_units(error), now)


def _child(row: tuple[Any, ...]) -> ChildWorkflow:
    request_id, uid, key, workflow, fingerprint, run_id, state, attempt, error = row
    text = None if error is None else error.decode("utf-8", "replace")
    return ChildWorkflow(request_id, uid, key, workflow, fingerprint, run_id, state, attempt, text)
