"""Presentation revisions of a run: what changed for those who look at it, kept for the newest 256 revisions.

A delta says by its row which revision it leads to and which part of the view has changed; whoever follows reads that
part again. Its patch is empty, one blob for all: patches with content of their own leave a dead one behind for every
step.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from ..wire import identities
from . import blobs

RETAINED: Final = 256
SLACK: Final = 64

Target = Literal["summary", "graph", "replay", "timeline", "conversation", "inspector"]

PATCH: Final = b"[]"
PATCH_HASH: Final = identities.sha256(PATCH)

DELTA_INSERT: Final = (
    "INSERT INTO viewer_deltas(run_id, presentation_revision, delta_index, target_type, target_key, patch_hash,"
    " recorded_at) VALUES (?, ?, ?, ?, '', ?, ?)"
)
_MOVE: Final = (
    "UPDATE viewer_runs SET presentation_revision = ?, retained_from_revision = ?, updated_at = ? WHERE run_id = ?"
)

_SINCE: Final = (
    "SELECT target_type, count(*) FILTER (WHERE delta_index = 0) FROM viewer_deltas WHERE run_id = ?"
    " AND presentation_revision > ? GROUP BY target_type"
)


def initialize(connection: sqlite3.Connection, run_id: str, now: int) -> None:
    """Give a new run its first presentation revision."""
    connection.execute("INSERT INTO viewer_runs VALUES (?, 1, 1, ?)", (run_id, now))


def record(connection: sqlite3.Connection, run_id: str, targets: tuple[Target, ...], now: int) -> None:
    """Raise a run's presentation revision by one, with one delta for each part of the view that changed."""
    row = connection.execute(
        "SELECT presentation_revision, retained_from_revision FROM viewer_runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    revision = row[0] + 1
    connection.execute(blobs.INSERT_BLOBS, blobs.blob_row(PATCH, blobs.JSON, now))
    connection.executemany(
        DELTA_INSERT, [(run_id, revision, index, target, PATCH_HASH, now) for index, target in enumerate(targets)]
    )
    move(connection, run_id, revision, row[1], now)


def move(connection: sqlite3.Connection, run_id: str, revision: int, retained_from: int, now: int) -> int:
    """Store the newest presentation revision and drop what is older than the 256 kept ones, a few dozen at a time.

    Gives the oldest revision kept.
    """
    if revision - retained_from >= RETAINED + SLACK:
        retained_from = revision - RETAINED + 1
        connection.execute(
            "DELETE FROM viewer_deltas WHERE run_id = ? AND presentation_revision < ?", (run_id, retained_from)
        )
    connection.execute(_MOVE, (revision, retained_from, now, run_id))
    return retained_from


def since(connection: sqlite3.Connection, run_id: str, after: int | None) -> tuple[int, list[str] | None]:
    """What changed for those who look at a run after a presentation revision.

    Gives the newest revision and the targets of all deltas since, in alphabetical order; None in their place when a
    snapshot is required: without `after`, from a revision that is not kept any more, or one that never was.
    """
    row = connection.execute(
        "SELECT presentation_revision, retained_from_revision FROM viewer_runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return 0, None
    newest, retained_from = row
    if after is None or not max(1, retained_from - 1) <= after <= newest:
        return newest, None
    found = connection.execute(_SINCE, (run_id, after)).fetchall()
    if sum(revisions for _, revisions in found) < newest - after:
        return newest, None
    return newest, sorted({target for target, _ in found})
