"""Bookkeeping that the other implementation keeps in the table of effects: that a run is still to be parked or ended.

Here a run's row and its queue row change in one transaction, and nothing is left to do; in a file that comes from there
it may be.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal, get_args

from ..wire.errors import ConflictError
from . import mutation
from .runs import RunRow

InternalEffect = Literal["run.park_queue", "run.settle_queue"]

_PENDING: Final = """
    SELECT r.run_id, e.effect_type FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id
    WHERE e.status = 'pending' AND e.effect_type IN ('run.park_queue', 'run.settle_queue')
      AND (?1 IS NULL OR r.project_id = ?1) ORDER BY e.created_at, e.effect_id
"""
_OF_RUN: Final = (
    "SELECT effect_id, resource_id FROM effects WHERE source_resource_id = ? AND effect_type = ? AND status = 'pending'"
)


def pending(connection: sqlite3.Connection, project_id: str | None) -> list[tuple[str, InternalEffect]]:
    """The runs of a project, or of all, with something left to do, and what it is, oldest first."""
    return connection.execute(_PENDING, (project_id,)).fetchall()


def settle(connection: sqlite3.Connection, run: RunRow, effect_type: InternalEffect, now: int) -> bool:
    """What was left to do is done; False when nothing of the kind was. `ConflictError` for any other kind."""
    if effect_type not in get_args(InternalEffect):
        raise ConflictError(f"{effect_type!r} is no bookkeeping: {' and '.join(get_args(InternalEffect))} are")
    found = connection.execute(_OF_RUN, (run.resource_id, effect_type)).fetchall()
    for effect_id, resource_id in found:
        connection.execute(
            "UPDATE effects SET status = 'applied', settled_at = ?, updated_at = ? WHERE effect_id = ?",
            (now, now, effect_id),
        )
        revision = mutation.bump(connection, resource_id, mutation.revision_of(connection, resource_id), now)
        payload = {"effectType": effect_type, "runId": run.run_id}
        mutation.record_event(connection, resource_id, revision, "effect.applied", "system", None, payload, now)
    return bool(found)
