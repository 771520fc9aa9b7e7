"""The strokes that transitions are drawn with: the event of a change, the queue row, whoever holds the run."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from ..wire import identities
from ..wire.runner_messages import ERROR_UNITS
from . import mutation, runs, viewer
from .mutation import ActorType, OwnerType
from .runs import RunRow

Actor = tuple[ActorType, str | None]
SYSTEM: Final[Actor] = ("system", None)


def event(
    connection: sqlite3.Connection,
    run: RunRow,
    event_type: str,
    payload: dict[str, Any],
    now: int,
    *,
    actor: Actor,
    generation: int | None = None,
) -> None:
    """Raise the run's revision by one, with its event and what viewers hear of it."""
    mutation.bump(connection, run.resource_id, run.revision, now)
    run.revision += 1
    mutation.record_event(
        connection, run.resource_id, run.revision, event_type, actor[0], actor[1], payload, now, generation
    )
    viewer.record(connection, run.run_id, ("summary",), now)


def set_queue(
    connection: sqlite3.Connection,
    run: RunRow,
    status: str,
    now: int,
    *,
    available_at: int | None = None,
    code: str | None = None,
    error: bytes | None = None,
    errors: int | None = None,
    finished: bool = False,
) -> None:
    """Write the queue row: due time and errors in a row stay unless given, code and error go unless given."""
    connection.execute(
        "UPDATE run_queue SET status = ?, available_at = coalesce(?, available_at), error_code = ?, error_hash = ?,"
        " consecutive_errors = coalesce(?, consecutive_errors), updated_at = ?, finished_at = ? WHERE run_id = ?",
        (status, available_at, code, error, errors, now, now if finished else None, run.run_id),
    )


def set_run(connection: sqlite3.Connection, run: RunRow, status: str, now: int, *, detail: str | None = None) -> None:
    """Write the status of a run that is not over; one that waits has stopped as well."""
    text = None if detail is None else identities.utf8(cap(detail)).decode()
    connection.execute(
        "UPDATE runs SET status = ?, status_detail = ?, finished_at = ?, updated_at = ? WHERE run_id = ?",
        (status, text, now if status == "waiting" else None, now, run.run_id),
    )


def interrupt_attempts(connection: sqlite3.Connection, run: RunRow, now: int) -> None:
    """What ran, or waited, is cut off; it is over once the next attempt of the run starts."""
    connection.execute(
        f"UPDATE node_attempts SET status = 'interrupted', updated_at = ? WHERE run_id = ? AND {runs.ACTIVE_ATTEMPT}",
        (now, run.run_id),
    )


def owner_type_of(owner_id: str) -> OwnerType:
    """What the owner of a run's claim is by its id: a server, or a session that executes it by itself."""
    return "host" if owner_id.startswith("host-") else "session"


def holder_of(run: RunRow) -> tuple[Actor, int | None]:
    """Who acts when a held run is parked, and under which generation."""
    return (SYSTEM, None) if run.owner_id is None else ((owner_type_of(run.owner_id), run.owner_id), run.generation)


def cap(text: str) -> str:
    """A text as long as the file keeps one."""
    return identities.cap_units(text, ERROR_UNITS)
