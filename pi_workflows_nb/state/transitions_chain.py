"""Runs that follow runs: the continuation after an answer, the restart after an end.

    waiting/parked -> waiting/done + queued/queued   answer: the continuation carries steps, outputs and step count on
    terminal       -> terminal     + queued/queued   restart: the same input and source, from the first node on

Either new run is parked with `sessionBusy` where its session's place is taken.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from ..wire import canonical_json, identities
from ..wire.errors import ConflictError
from . import blobs, follow_ups, mutation, runs, setting_scopes, waits
from .controls import TERMINAL, require
from .runs import Lineage, RunRow
from .transitions_record import event, set_queue
from .transitions_waits import close_wait
from .waits import OpenWait

MOST_RESTARTS: Final = 3

_ANCESTORS: Final = """
    WITH RECURSIVE up(run_id, depth) AS (
        SELECT ?1, 0 UNION ALL SELECT r.parent_run_id, up.depth + 1 FROM runs r JOIN up USING (run_id)
        WHERE r.parent_run_id IS NOT NULL)
    SELECT r.run_id, r.status, r.lineage_kind, r.workflow_ref, r.input_hash, r.final_output_hash, r.error_hash
    FROM up JOIN runs r USING (run_id) ORDER BY depth
"""
_RESTART_OF: Final = "SELECT run_id FROM runs WHERE parent_run_id = ? AND lineage_kind = 'restart'"
_MADE_OF: Final = """
    SELECT d.workflow_name, b.content, i.content, o.content, s.source_type, s.source_ref, s.source_revision, r.title,
           n.execution_mode
    FROM runs r JOIN workflow_definitions d USING (definition_digest) JOIN blobs b ON b.blob_hash = d.definition_hash
    JOIN blobs i ON i.blob_hash = r.input_hash JOIN blobs o ON o.blob_hash = r.launch_options_hash
    JOIN run_sources s ON s.run_id = r.run_id AND mount_path = '' JOIN run_bindings n ON n.run_id = r.run_id
    WHERE r.run_id = ?
"""


def answer(connection: sqlite3.Connection, run_id: str, continuation_id: str, value: bytes, now: int) -> None:
    """Answer a checkpoint, or give a run the event that it waits for; a new run goes on with the run's steps.

    `value` is canonical JSON: the output of the node that waited. Whoever holds the run where it waits is fenced.
    `ConflictError` when the run waits for no answer, is paused, or has waited for its event too long.
    """
    run = runs.read(connection, run_id)
    require(run_id, waits.standing(connection, run), "answer")
    wait = waits.open_wait(connection, run)
    if wait is not None:
        if wait.due_at is not None and wait.due_at <= now:
            raise ConflictError(f"run {run_id} waits no longer: the time for its event is over")
        go_on_as(connection, run, wait, continuation_id, value, now)
        return
    _continue(connection, run, continuation_id, value, now)


def go_on_as(
    connection: sqlite3.Connection, run: RunRow, wait: OpenWait, continuation_id: str, value: bytes, now: int
) -> None:
    """End a run's wait, and let a new run go on with `value` (canonical JSON) as what was waited for."""
    close_wait(connection, run, wait, "completed", now, output=blobs.put_json_bytes(connection, b"null", now))
    _continue(connection, run, continuation_id, value, now)


def _continue(connection: sqlite3.Connection, run: RunRow, continuation_id: str, value: bytes, now: int) -> None:
    run_id = run.run_id
    mutation.clear_lease(connection, run.resource_id)
    set_queue(connection, run, "done", now, finished=True)
    actor = ("session", run.session_id)
    payload = {"continuationRunId": continuation_id}
    event(connection, run, "run.queue_done_for_continuation", payload, now, actor=actor)  # type: ignore[arg-type]
    runs.insert(connection, _like(connection, run, continuation_id), now, Lineage(run, "continuation"))
    setting_scopes.carry_on(connection, run_id, continuation_id, now)
    follow_ups.carry_on(connection, run_id, continuation_id, now)
    digest = blobs.put_json_bytes(connection, value, now)
    connection.execute(
        "INSERT INTO run_steps SELECT ?1, step_index, attempt_id, CASE step_index WHEN"
        " (SELECT max(step_index) FROM run_steps WHERE run_id = ?3) THEN ?2 ELSE output_override_hash END"
        " FROM run_steps WHERE run_id = ?3",
        (continuation_id, digest, run_id),
    )


def restart(connection: sqlite3.Connection, run_id: str, now: int) -> str:
    """Start a run that is over once more, and give the new run's id. `ConflictError` says why it may not be."""
    run = runs.read(connection, run_id)
    refused = restart_refused(connection, run_id)
    if refused is not None:
        raise ConflictError(f"run {run_id} cannot be restarted: {refused}")
    fingerprint = terminal_fingerprint(connection, run_id)
    new_id = identities.restart_run_id(run_id, fingerprint)
    number = _restarts(_ancestors(connection, run_id)) + 1
    lineage = Lineage(run, "restart", number, fingerprint)
    new = dataclasses.replace(_like(connection, run, new_id), settings=setting_scopes.initial_of(connection, run_id))
    runs.insert(connection, new, now, lineage)
    return new_id


def restart_refused(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Why a run may not be restarted, or None when it may."""
    chain = _ancestors(connection, run_id)
    run, before = chain[0], chain[1:]
    if run.status not in TERMINAL:
        return f"it is {run.status}, not over"
    if run.status == "cancelled":
        return "it was cancelled; start a new run"
    other = connection.execute(_RESTART_OF, (run_id,)).fetchone()
    if other is not None:
        return f"it was, as {other[0]}"
    if _restarts(chain) >= MOST_RESTARTS:
        return f"it was restarted {MOST_RESTARTS} times already; start a new run"
    same = next((one.run_id for one in before if one.how == run.how), None)
    if same is not None:
        return f"{same} before it ended in the same way, and so would the next; mend what fails and start a new run"
    return None


def terminal_fingerprint(connection: sqlite3.Connection, run_id: str) -> bytes:
    """What tells two ends apart: the SHA-256 of {error, finalOutput, input, reason, status, workflowRef}."""
    ref, status, given, output, error = connection.execute(
        "SELECT workflow_ref, status, input_hash, final_output_hash, error_hash FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    text = None if error is None else blobs.read_text(connection, error)
    digest = hashlib.sha256(b'{"error":' + canonical_json.encode(text))
    for name, value in (("finalOutput", output), ("input", given)):
        digest.update(f',"{name}":'.encode())
        _feed(digest, connection, value)
    digest.update(b',"reason":null,"status":' + canonical_json.encode(status))
    digest.update(b',"workflowRef":' + canonical_json.encode(ref) + b"}")
    return digest.digest()


def _feed(digest: Any, connection: sqlite3.Connection, value: bytes | None) -> None:
    if value is None:
        digest.update(b"null")
        return
    offset = 0
    while part := blobs.read_part(connection, value, offset, _PART):
        digest.update(part)
        offset += len(part)


_PART: Final = 512 << 10


@dataclass(frozen=True)
class _End:
    run_id: str
    status: str
    lineage: str | None
    how: tuple[Any, ...]


def _ancestors(connection: sqlite3.Connection, run_id: str) -> list[_End]:
    """The run and all before it in its chain, newest first, each with what its terminal fingerprint is made of."""
    return [
        _End(row[0], row[1], row[2], (row[1], *row[3:])) for row in connection.execute(_ANCESTORS, (run_id,)).fetchall()
    ]


def _restarts(chain: list[_End]) -> int:
    return sum(one.lineage == "restart" for one in chain)


def _like(connection: sqlite3.Connection, run: RunRow, run_id: str) -> runs.NewRun:
    """A new run of the same workflow, source, input, options and session."""
    name, snapshot, given, options, kind, ref, revision, title, mode = connection.execute(
        _MADE_OF, (run.run_id,)
    ).fetchone()
    return runs.NewRun(
        run_id=run_id,
        workflow_name=name,
        project_id=run.project_id,
        snapshot=snapshot,
        input=given,
        launch_options=options,
        source={"type": kind, "ref": ref, "revision": revision},
        frozen=b"",
        session_id=run.session_id,
        title=title,
        mode=mode,
        mounted=runs.mounted_sources(connection, run.run_id),
    )
