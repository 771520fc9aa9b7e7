"""What every viewer shows of a run, and infers nothing beyond: status, activity, allowed controls, reason."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..state.runs import TERMINAL

_VIEW: Final = """
    SELECT r.run_id, d.workflow_name, r.title, r.status, r.paused, r.status_detail, r.created_at, r.updated_at,
           r.finished_at, r.parent_run_id, r.root_run_id, q.status, q.available_at, q.error_code, a.revision,
           substr(CAST(e.content AS TEXT), 1, 8192), n.node_id, n.attempt_number,
           (SELECT c.run_id FROM runs c WHERE c.parent_run_id = r.run_id AND c.lineage_kind = 'continuation' LIMIT 1),
           (SELECT max(step_index) + 1 FROM run_steps s WHERE s.run_id = r.run_id),
           (SELECT f.effect_id FROM effects f WHERE f.source_resource_id = r.resource_id AND f.status = 'ambiguous'
            LIMIT 1),
           (SELECT b.node_id FROM run_steps s JOIN node_attempts b USING (attempt_id) WHERE s.run_id = r.run_id
            ORDER BY s.step_index DESC LIMIT 1),
           EXISTS (SELECT 1 FROM run_workers w WHERE w.run_id = r.run_id
                   AND w.status IN ('starting', 'ready', 'running'))
    FROM runs r JOIN workflow_definitions d USING (definition_digest) JOIN run_queue q USING (run_id)
    JOIN resources a USING (resource_id) LEFT JOIN blobs e ON e.blob_hash = r.error_hash
    LEFT JOIN node_attempts n ON n.run_id = r.run_id AND n.status IN ('pending', 'running', 'waiting')
    WHERE r.run_id = ?
"""


def live_view(connection: sqlite3.Connection, run_id: str, now: int) -> dict[str, Any] | None:
    """The live view of a run as a JSON object, or None where there is no such run. Times in ms."""
    row = connection.execute(_VIEW, (run_id,)).fetchone()
    if row is None:
        return None
    (
        _, workflow, title, status, paused, detail, created_at, updated_at, finished_at, parent, root, queue_status,
        available_at, error_code, revision, error, node, number, continuation, steps, effect, last_node, live,
    ) = row  # fmt: skip
    ambiguous = effect is not None and error_code == "effectAmbiguous"
    display = _display(status, bool(paused), ambiguous, bool(live))
    waiting_for = None
    if ambiguous:
        waiting_for = {"effectId": effect, "kind": "effect"}
    elif status == "waiting" and queue_status == "parked":
        waiting_for = {"kind": "checkpoint", "nodeId": last_node}
    return {
        "activity": _activity(display, node, number, last_node),
        "continuedBy": continuation,
        "controls": _controls(status, queue_status, bool(paused), error_code, waiting_for),
        "createdAt": created_at,
        "currentNode": node,
        "error": error,
        "finishedAt": finished_at if status in TERMINAL else None,
        "parentRunId": parent,
        "paused": bool(paused),
        "queueStatus": queue_status,
        "reason": _reason(display, detail, error_code, waiting_for, available_at, now),
        "revision": revision,
        "rootRunId": root,
        "runId": run_id,
        "runStatus": status,
        "status": display,
        "stepCount": steps or 0,
        "title": title,
        "updatedAt": updated_at,
        "waitingFor": waiting_for,
        "workflow": workflow,
    }


def _display(status: str, paused: bool, ambiguous: bool, live: bool) -> str:
    if ambiguous and status not in TERMINAL:
        return "ambiguous"
    if live and status == "running" and not paused:
        return "running"
    if status in TERMINAL:
        return status
    if paused:
        return "paused"
    return "waiting" if status == "waiting" else "queued"


def _activity(display: str, node: str | None, number: int | None, last_node: str | None) -> str:
    if display == "running":
        again = f" (attempt {number})" if number and number > 1 else ""
        return f"running {node}{again}" if node else "starting"
    if display == "waiting":
        return f"waiting at {last_node}"
    return display.replace("_", " ")


def _controls(
    status: str, queue_status: str, paused: bool, error_code: str | None, waiting_for: dict[str, Any] | None
) -> list[str]:
    if status in TERMINAL or queue_status == "done":
        return []
    if status == "waiting":
        kind = waiting_for["kind"] if waiting_for else None
        return ["answer", "cancel"] if kind == "checkpoint" else ["cancel", "confirm", "retry"]
    if paused or error_code in ("workflowSourceChanged", "runnerNoProgress"):
        return ["cancel", "resume"]
    return ["cancel", "pause"]


def _reason(
    display: str,
    detail: str | None,
    error_code: str | None,
    waiting_for: dict[str, Any] | None,
    available_at: int,
    now: int,
) -> str | None:
    if waiting_for is not None and waiting_for["kind"] == "effect":
        return (
            f"effect {waiting_for['effectId']} may have happened: server.get_effect(id).confirm() if it did,"
            " .retry() to apply it again"
        )
    if waiting_for is not None:
        return f"checkpoint {waiting_for['nodeId']} needs an answer: run.answer(value)"
    if error_code in ("workflowSourceChanged", "runnerNoProgress"):
        return f"{detail or error_code}; run.resume() tries again"
    if display == "paused":
        return "paused: run.resume() goes on"
    if display == "queued" and available_at > now:
        return f"due in {(available_at - now) / 1000:.0f} s"
    return None
