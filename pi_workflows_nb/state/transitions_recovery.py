"""What a new owner makes of the runs of the one before, whose processes are all gone. One transaction.

In this order: what was due while nobody served; effects, before anything is decided about their runs; then runs that
were cut off, and who stands in line. A committed boundary is never executed again.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from . import mutation, places, run_effects, runs, waits
from .controls import TERMINAL
from .transitions_decisions import expire_decision
from .transitions_parking import park, park_ambiguous
from .transitions_record import event, holder_of
from .transitions_waits import expire_event

_LATE: Final = f"""
    SELECT r.run_id FROM runs r JOIN run_queue q USING (run_id)
    WHERE r.status = 'waiting' AND q.status = 'parked' AND r.paused = 0 AND q.available_at <= ? AND {waits.TIMED}
    ORDER BY q.available_at, q.created_at
"""
_UNCERTAIN: Final = f"""
    SELECT DISTINCT r.run_id FROM effects e JOIN runs r ON r.resource_id = e.source_resource_id
    WHERE e.status = 'applying' AND e.owner_scope = 'run' AND r.status NOT IN {TERMINAL}
"""
_CUT_OFF: Final = (
    "SELECT q.run_id FROM run_queue q JOIN runs r USING (run_id) WHERE q.status IN ('starting', 'running')"
    " AND r.status IN ('queued', 'running') ORDER BY q.created_at"
)
_HELD: Final = (
    "SELECT r.run_id FROM leases l JOIN runs r USING (resource_id) JOIN run_queue q USING (run_id)"
    " WHERE l.owner_type IS NOT NULL AND q.status = 'parked'"
)
_IN_LINE: Final = (
    "SELECT DISTINCT q.origin_session_id FROM run_queue q JOIN runs r USING (run_id)"
    " WHERE q.status = 'parked' AND r.status = 'queued' AND r.paused = 0"
)


def recover(connection: sqlite3.Connection, now: int) -> set[str]:
    """Bring all runs into a state from which they go on by themselves; gives those that changed."""
    return (
        act_on_passed_deadlines(connection, now)
        | settle_effects(connection, now)
        | park_cut_off(connection, now)
        | let_go(connection, now)
        | pass_places_on(connection, now)
    )


def act_on_passed_deadlines(connection: sqlite3.Connection, now: int) -> set[str]:
    """Events that were due while nobody served have not come, and of decisions the default counts."""
    changed = set()
    for run_id in _ids(connection, _LATE, now):
        run = runs.read(connection, run_id)
        if expire_event(connection, run, now) or expire_decision(connection, run, now) is not None:
            changed.add(run_id)
    return changed


def settle_effects(connection: sqlite3.Connection, now: int) -> set[str]:
    """What was being applied is uncertain: to be applied again, or, of a manual effect, for a person to say."""
    changed = _ids(connection, _UNCERTAIN)
    for run_id in changed:
        run = runs.read(connection, run_id)
        if run_effects.settle_uncertain(connection, run, now):
            park_ambiguous(connection, run, now)
    return set(changed)


def park_cut_off(connection: sqlite3.Connection, now: int) -> set[str]:
    """Runs whose process is gone are due again at their boundary; the end of a server counts for none of them."""
    changed = _ids(connection, _CUT_OFF)
    for run_id in changed:
        park(connection, runs.read(connection, run_id), now, available_at=now)
    return set(changed)


def let_go(connection: sqlite3.Connection, now: int) -> set[str]:
    """Whoever held a waiting run to validate a submission is gone; the submission is validated anew."""
    changed = _ids(connection, _HELD)
    for run_id in changed:
        run = runs.read(connection, run_id)
        actor, generation = holder_of(run)
        mutation.clear_lease(connection, run.resource_id)
        event(connection, run, "lease.released", {}, now, actor=actor, generation=generation)
    return set(changed)


def pass_places_on(connection: sqlite3.Connection, now: int) -> set[str]:
    """Whoever stands in line for a place that is free takes it."""
    sessions = _ids(connection, _IN_LINE)
    for session_id in sessions:
        places.pass_on(connection, session_id, now)
    return set()


def _ids(connection: sqlite3.Connection, query: str, *parameters: int) -> list[str]:
    return [found for (found,) in connection.execute(query, parameters).fetchall()]
