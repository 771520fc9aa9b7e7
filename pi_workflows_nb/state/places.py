"""A session's place: of the interactive runs of one session, one at a time is queued, starting or running.

A run that finds the place taken is stored `parked` with the detail `sessionBusy`. When the place is free it goes to the
oldest run of the session that can go on now: one that was begun is claimed from where it is parked, one that was not
becomes `queued`. Runs that are paused, waiting, asleep or over hold no place and want none.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from . import mutation, viewer

SESSION_BUSY: Final = "sessionBusy"
HEADLESS: Final = "headless:"
HOLDING: Final = ("queued", "starting", "running")
STOPPED: Final = ("workflowSourceChanged", "runnerNoProgress")

_HOLDER: Final = (
    "SELECT run_id FROM run_queue WHERE origin_session_id = ? AND status IN ('queued', 'starting', 'running')"
    " AND run_id <> ?"
)
_WANTS: Final = f"""
    FROM run_bindings b JOIN runs r USING (run_id) JOIN run_queue q USING (run_id)
    WHERE b.origin_session_id = ?1 AND q.status = 'parked' AND r.paused = 0 AND r.status IN ('queued', 'running')
      AND coalesce(q.error_code, '') NOT IN {STOPPED} AND (r.status = 'queued' OR q.available_at <= ?2)
"""
_FIRST: Final = f"SELECT r.run_id, r.resource_id, r.status {_WANTS} ORDER BY q.created_at, r.rowid LIMIT 1"
_OLDER: Final = f"SELECT r.run_id {_WANTS} AND (q.created_at, r.rowid) < (SELECT o.created_at, n.rowid FROM run_queue o"
_OLDER_ONE: Final = f"{_OLDER} JOIN runs n USING (run_id) WHERE o.run_id = ?3) LIMIT 1"
_MATES: Final = """
    SELECT b.run_id FROM run_bindings a JOIN run_bindings b ON b.origin_session_id = a.origin_session_id
    JOIN run_queue q ON q.run_id = b.run_id WHERE a.run_id = ?1 AND b.run_id <> ?1 AND q.status IN ('queued', 'parked')
      AND a.execution_mode = 'interactive'
"""


def holder(connection: sqlite3.Connection, session_id: str, besides: str = "") -> str | None:
    """The run that holds a session's place, other than `besides`; None when it is free."""
    row = None if session_id.startswith(HEADLESS) else connection.execute(_HOLDER, (session_id, besides)).fetchone()
    return None if row is None else str(row[0])


def is_free_for_new(connection: sqlite3.Connection, session_id: str, now: int) -> bool:
    """Whether a run that is made now may have the place: nobody holds it, and nobody older wants it."""
    if session_id.startswith(HEADLESS):
        return True
    return holder(connection, session_id) is None and connection.execute(_FIRST, (session_id, now)).fetchone() is None


def is_free_for(connection: sqlite3.Connection, session_id: str, run_id: str, now: int) -> bool:
    """Whether a parked run may take the place: nobody else holds it, and no older run can go on now."""
    if session_id.startswith(HEADLESS):
        return True
    if holder(connection, session_id, run_id) is not None:
        return False
    return connection.execute(_OLDER_ONE, (session_id, now, run_id)).fetchone() is None


def pass_on(connection: sqlite3.Connection, session_id: str, now: int) -> None:
    """A run of the session has left, or left the line: the place, when it is free, goes to the oldest that wants it."""
    if session_id.startswith(HEADLESS) or holder(connection, session_id) is not None:
        return
    row = connection.execute(_FIRST, (session_id, now)).fetchone()
    if row is None or row[2] != "queued":
        return
    run_id, resource_id, _ = row
    connection.execute("UPDATE runs SET status_detail = NULL, updated_at = ? WHERE run_id = ?", (now, run_id))
    connection.execute("UPDATE run_queue SET status = 'queued', updated_at = ? WHERE run_id = ?", (now, run_id))
    revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
    mutation.record_event(
        connection, resource_id, revision, "run.queue_queued", "session", session_id, {"status": "queued"}, now
    )
    viewer.record(connection, run_id, ("summary",), now)


def mates(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """The runs of an interactive run's session that may go on when it has left; none of a headless one's."""
    return [mate for (mate,) in connection.execute(_MATES, (run_id,))]
