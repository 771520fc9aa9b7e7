"""What a parked run waits for: a person, an event, its session, or a moment.

A run that sleeps is `running` and parked, one that waits for an event is `waiting`; both keep their attempt open
(`waiting`), and `deadline_at` of the attempt, the same as `available_at` of the queue row, is when the wait is over. A
plain checkpoint has ended its attempt with what it asks.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

import msgspec

from .controls import Standing, WaitsFor
from .runs import RunRow

TIMED: Final = (
    "EXISTS (SELECT 1 FROM node_attempts t WHERE t.run_id = r.run_id AND t.status = 'waiting'"
    " AND t.node_type = 'checkpoint' AND t.deadline_at IS NOT NULL)"
)
"""Whether run `r`, which waits, goes on by itself at some moment."""

_OPEN: Final = (
    "SELECT attempt_id, node_id, node_type, started_at, deadline_at FROM node_attempts"
    " WHERE run_id = ? AND status = 'waiting'"
)
_REQUEST: Final = "SELECT kind FROM interactive_requests WHERE attempt_id = ? AND status = 'pending'"
_DECISION: Final = (
    "SELECT 1 FROM human_decisions d LEFT JOIN human_decision_resolutions x USING (decision_id)"
    " WHERE d.run_id = ? AND x.decision_id IS NULL"
)
_EVENTS: Final = """
    SELECT r.run_id, t.node_id, t.deadline_at, b.content FROM runs r JOIN run_queue q USING (run_id)
    JOIN node_attempts t ON t.run_id = r.run_id AND t.status = 'waiting' AND t.node_type = 'checkpoint'
    JOIN workflow_definitions d USING (definition_digest) JOIN blobs b ON b.blob_hash = d.definition_hash
    WHERE r.status = 'waiting' AND q.status = 'parked' AND r.paused = 0 AND r.project_id = ?
    ORDER BY q.created_at, r.rowid
"""


@dataclass(frozen=True)
class OpenWait:
    """The attempt that a run waits in; times in milliseconds, `due_at` None for a wait without an end."""

    attempt_id: str
    node_id: str
    node_type: str
    started_at: int
    due_at: int | None


@dataclass(frozen=True)
class EventWait:
    """A run that waits for an event of the name asked for; `validated` says that its node looks at the value."""

    run_id: str
    node_id: str
    validated: bool


def open_wait(connection: sqlite3.Connection, run: RunRow) -> OpenWait | None:
    """The attempt that a run waits in; None for one that waits in none."""
    row = connection.execute(_OPEN, (run.run_id,)).fetchone()
    return None if row is None else OpenWait(*row)


def waits_for(connection: sqlite3.Connection, run: RunRow) -> WaitsFor | None:
    """What a waiting run needs to go on; None for a run that does not wait."""
    if run.status != "waiting" or run.queue_status != "parked":
        return None
    if run.error_code == "effectAmbiguous":
        return "effect"
    wait = open_wait(connection, run)
    if wait is not None:
        row = connection.execute(_REQUEST, (wait.attempt_id,)).fetchone()
        if row is not None:
            return "decision" if row[0] == "decision" else "request"
    if connection.execute(_DECISION, (run.run_id,)).fetchone() is not None:
        return "decision"
    return "checkpoint" if wait is None else "event"


def answered_node(connection: sqlite3.Connection, run: RunRow) -> str:
    """The node that an answer to a waiting run becomes the output of."""
    wait = open_wait(connection, run)
    if wait is not None:
        return wait.node_id
    row = connection.execute(
        "SELECT node_id FROM run_steps s JOIN node_attempts USING (attempt_id) WHERE s.run_id = ?"
        " ORDER BY step_index DESC LIMIT 1",
        (run.run_id,),
    ).fetchone()
    return str(row[0])


def standing(connection: sqlite3.Connection, run: RunRow) -> Standing:
    """How a run that is not over stands, for what may be done with it."""
    return Standing(run.status, run.queue_status, run.paused, run.error_code, waits_for(connection, run))


def for_event(connection: sqlite3.Connection, project_id: str, name: str, now: int) -> list[EventWait]:
    """The runs of a project that wait for an event at this moment, oldest first."""
    found = []
    for run_id, node_id, due_at, definition in connection.execute(_EVENTS, (project_id,)).fetchall():
        event = event_of(definition, node_id)
        if event is not None and event.get("name") == name and (due_at is None or due_at > now):
            found.append(EventWait(run_id, node_id, bool(event.get("validated"))))
    return found


def event_of(definition: bytes, node_id: str) -> dict[str, object] | None:
    """What the stored definition says of the event that a node waits for; None for any other node."""
    node = msgspec.json.decode(definition).get("nodes", {}).get(node_id, {})
    event: dict[str, object] | None = node.get("waitEvent")
    return event
