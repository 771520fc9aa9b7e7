"""What every viewer shows of a run, and infers nothing beyond: status, activity, allowed controls, reason.

The server computes it for its clients; whoever reads a file that nobody serves computes it from the same rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from ..state import runs, server_row, transitions_chain, waits
from ..state.controls import STOPPED, TERMINAL, Standing, allowed
from ..wire import canonical_json
from . import processes

_VIEW: Final = """
    SELECT r.run_id, d.workflow_name, r.title, r.status, r.paused, r.status_detail, r.created_at, r.updated_at,
           r.finished_at, r.parent_run_id, r.root_run_id, q.status, q.available_at, q.error_code, a.revision,
           substr(CAST(e.content AS TEXT), 1, 8192), n.node_id, n.attempt_number,
           (SELECT c.run_id FROM runs c WHERE c.parent_run_id = r.run_id AND c.lineage_kind = 'continuation' LIMIT 1),
           (SELECT max(step_index) + 1 FROM run_steps s WHERE s.run_id = r.run_id),
           (SELECT f.effect_id FROM effects f WHERE f.source_resource_id = r.resource_id AND f.status = 'ambiguous'
            ORDER BY f.created_at LIMIT 1),
           (SELECT b.node_id FROM run_steps s JOIN node_attempts b USING (attempt_id) WHERE s.run_id = r.run_id
            ORDER BY s.step_index DESC LIMIT 1),
           EXISTS (SELECT 1 FROM run_workers w WHERE w.run_id = r.run_id
                   AND w.status IN ('starting', 'ready', 'running')),
           coalesce(v.presentation_revision, 0), r.project_id, n.status
    FROM runs r JOIN workflow_definitions d USING (definition_digest) LEFT JOIN run_queue q USING (run_id)
    JOIN resources a USING (resource_id) LEFT JOIN viewer_runs v USING (run_id)
    LEFT JOIN blobs e ON e.blob_hash = r.error_hash
    LEFT JOIN node_attempts n ON n.run_id = r.run_id AND n.status IN ('pending', 'running', 'waiting')
    WHERE r.run_id = ?
"""

_OPEN_TURN: Final = "SELECT 1 FROM workflow_turns WHERE run_id = ? AND state = 'started'"
_NEWEST: Final = "SELECT run_id FROM runs ORDER BY created_at DESC, rowid DESC LIMIT ?"
_NEWEST_OF_PROJECT: Final = (
    "SELECT run_id FROM runs WHERE project_id = ?2 ORDER BY created_at DESC, rowid DESC LIMIT ?1"
)
LONGEST_LIST: Final = 500
LIST_BYTES: Final = 900_000
ROW_TEXT: Final = 200


def live_view(
    connection: sqlite3.Connection,
    run_id: str,
    now: int,
    *,
    served: bool = True,
    has_agent: Callable[[str], bool] = lambda _: False,
) -> dict[str, Any] | None:
    """The live view of a run as a JSON object, or None where there is no such run. Times in ms.

    `served` is whether a server lives: without one no run executes, whatever its rows say. `has_agent` tells of a run
    whether an agent of its session answers what it asks.
    """
    row = connection.execute(_VIEW, (run_id,)).fetchone()
    if row is None:
        return None
    (
        _, workflow, title, status, paused, detail, created_at, updated_at, finished_at, parent, root, queue_status,
        available_at, error_code, revision, error, node, number, continuation, steps, effect, last_node, live,
        view_revision, project_id, node_status,
    ) = row  # fmt: skip
    due = available_at if queue_status in ("queued", "parked") else None
    waiting_for = _waiting_for(connection, run_id, effect) if status == "waiting" else None
    kind = None if waiting_for is None else waiting_for["kind"]
    turn = kind == "request" and connection.execute(_OPEN_TURN, (run_id,)).fetchone() is not None
    restartable = status in TERMINAL and transitions_chain.restart_refused(connection, run_id) is None
    display = _display(status, bool(paused), kind == "effect", served and bool(live), turn=turn)
    controls = allowed(Standing(status, queue_status or "done", bool(paused), error_code, kind, restartable))
    return {
        "activity": _activity(display, node or last_node, number, asleep=node_status == "waiting"),
        "continuedBy": continuation,
        "controls": controls,
        "createdAt": created_at,
        "currentNode": node,
        "error": error,
        "finishedAt": finished_at if status in TERMINAL else None,
        "needsPerson": kind in ("checkpoint", "decision", "effect")
        or (kind == "request" and not has_agent(run_id))
        or "resume" in controls,
        "parentRunId": parent,
        "paused": bool(paused),
        "projectId": project_id,
        "queueStatus": queue_status,
        "reason": None if status in TERMINAL else _reason(bool(paused), detail, error_code, waiting_for, due, now),
        "revision": revision,
        "rootRunId": root,
        "runId": run_id,
        "runStatus": status,
        "status": display,
        "stepCount": steps or 0,
        "title": title,
        "updatedAt": updated_at,
        "viewRevision": view_revision,
        "waitingFor": waiting_for,
        "workflow": workflow,
    }


def read_only(connection: sqlite3.Connection, run_id: str, now: int) -> dict[str, Any] | None:
    """The live view as the file alone tells it, for whoever can do nothing to a run: it has no controls."""
    view = live_view(connection, run_id, now, served=is_served(connection))
    return None if view is None else {**view, "controls": []}


def read_only_list(
    connection: sqlite3.Connection, limit: int, project_id: str | None, now: int
) -> list[dict[str, Any]]:
    """The list of runs as the file alone tells it."""
    rows = run_list(connection, limit, project_id, now, served=is_served(connection))
    return [{**row, "controls": []} for row in rows]


def is_served(connection: sqlite3.Connection) -> bool:
    """Whether the file's recorded owner may still live."""
    owner = server_row.owner(connection)
    return owner is not None and processes.is_alive(owner.pid, owner.start_identity) is not False


def run_list(
    connection: sqlite3.Connection,
    limit: int,
    project_id: str | None,
    now: int,
    *,
    served: bool = True,
    has_agent: Callable[[str], bool] = lambda _: False,
) -> list[dict[str, Any]]:
    """The newest runs, newest first, of one project or of the whole file: live views with long texts cut.

    At most `limit`, 500, and as many as fit into a frame.
    """
    limit = max(1, min(limit, LONGEST_LIST))
    if project_id is None:
        found = connection.execute(_NEWEST, (limit,)).fetchall()
    else:
        found = connection.execute(_NEWEST_OF_PROJECT, (limit, project_id)).fetchall()
    rows: list[dict[str, Any]] = []
    room = LIST_BYTES
    for (run_id,) in found:
        view = live_view(connection, run_id, now, served=served, has_agent=has_agent)
        assert view is not None
        row = list_row(view)
        room -= len(canonical_json.encode(row)) + 1
        if room < 0:
            break
        rows.append(row)
    return rows


def list_row(view: dict[str, Any]) -> dict[str, Any]:
    """A live view as a row of a list: the same, with long texts cut."""
    return {**view, **{name: _cut(view[name]) for name in ("activity", "error", "reason", "title")}}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= ROW_TEXT else text[: ROW_TEXT - 1] + "…"


def _waiting_for(connection: sqlite3.Connection, run_id: str, effect: str | None) -> dict[str, Any] | None:
    run = runs.read(connection, run_id)
    kind = waits.waits_for(connection, run)
    if kind is None:
        return None
    if kind == "effect":
        return {"effectId": effect, "kind": kind}
    wait = waits.open_wait(connection, run)
    due = None if wait is None else wait.due_at
    return {"dueAt": due, "kind": kind, "nodeId": waits.answered_node(connection, run)}


def _display(status: str, paused: bool, ambiguous: bool, live: bool, *, turn: bool) -> str:
    if ambiguous:
        return "ambiguous"
    if turn and not paused:
        return "running"
    if live and status == "running" and not paused:
        return "running"
    if status in TERMINAL:
        return status
    if paused:
        return "paused"
    return "waiting" if status == "waiting" else "queued"


def _activity(display: str, node: str | None, number: int | None, *, asleep: bool) -> str:
    if display == "running":
        again = f" (attempt {number})" if number and number > 1 else ""
        return f"running {node}{again}" if node else "starting"
    if display == "waiting":
        return f"waiting at {node}"
    if display == "queued" and asleep:
        return f"asleep at {node}"
    return display.replace("_", " ")


def _reason(
    paused: bool,
    detail: str | None,
    error_code: str | None,
    waiting_for: dict[str, Any] | None,
    due: int | None,
    now: int,
) -> str | None:
    if waiting_for is not None and waiting_for["kind"] == "effect":
        return (
            f"effect {waiting_for['effectId']} may have happened: server.get_effect(id).confirm() if it did,"
            " .retry() to apply it again"
        )
    if paused:
        return "paused: run.resume() goes on"
    if error_code in STOPPED:
        return f"{detail or error_code}; run.resume() tries again"
    if waiting_for is not None:
        return _WAITS[waiting_for["kind"]].format(node=waiting_for["nodeId"]) + _limit(waiting_for["dueAt"], now)
    if detail == "sessionBusy":
        return "another run of this session is under way; this one takes its place after it"
    return f"due in {_seconds(due, now)}" if due is not None and due > now else None


def _limit(due: int | None, now: int) -> str:
    return "" if due is None else f", for {_seconds(due, now)} more"


def _seconds(due: int, now: int) -> str:
    return f"{max(0, due - now) / 1000:.0f} s"


_WAITS: Final = {
    "checkpoint": "checkpoint {node} needs an answer: run.answer(value)",
    "decision": "decision {node} needs a person",
    "event": "{node} waits for an event: server.signal(name, value) or run.answer(value)",
    "request": "{node} waits for an answer of its session",
}
