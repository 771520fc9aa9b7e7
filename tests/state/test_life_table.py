"""The table of a run's life: each state is reached, sound, and allows exactly what the transitions then accept."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import controls, transitions
from pi_workflows_nb.wire.errors import ConflictError
from tests.state.files import NOW
from tests.state.lives import Life, end, move

SOON = NOW + 60_000


def fresh(life):
    pass


def paused_before_start(life):
    life.pause()


def starting(life):
    with life.database.transaction() as c:
        life.claim = transitions.claim_for_execution(c, life.run_id, "host-a", life.now)


def running(life):
    life.take()
    life.step(move(started=life.started()))


def parked(life):
    running(life)
    life.gone()
    with life.database.transaction() as c:
        transitions.park(c, life.row, NOW, available_at=NOW, errors=1)


def paused(life):
    running(life)
    life.pause()
    life.gone("cancelled")


def source_changed(life):
    running(life)
    life.gone()
    with life.database.transaction() as c:
        transitions.park_for_source_change(c, life.row, "another graph", NOW)


def without_progress(life):
    running(life)
    life.gone()
    with life.database.transaction() as c:
        transitions.park_without_progress(c, life.row, "it crashed", NOW, errors=3)


def asleep(life):
    life.take()
    life.sleeps(SOON)


def asks(life):
    life.take()
    life.asks()


def asks_paused(life):
    asks(life)
    life.pause()


def awaits_event(life):
    life.take()
    life.awaits(SOON)


def ambiguous(life):
    life.take()
    life.acts("manual")
    life.gone()
    with life.database.transaction() as c:
        transitions.park(c, life.row, NOW, available_at=NOW, errors=1)
        assert transitions.claim_for_execution(c, life.run_id, "host-a", NOW) is None


def answered(life):
    asks(life)
    life.answer()


def ended(status):
    def at_its_end(life):
        running(life)
        life.step(move(finished=life.finished(), end=end(status, error=None if status == "completed" else "boom")))
        life.gone("exited")

    at_its_end.__name__ = status
    return at_its_end


TABLE = [
    (fresh, ("queued", "queued"), False),
    (paused_before_start, ("queued", "parked"), False),
    (starting, ("running", "starting"), True),
    (running, ("running", "running"), True),
    (parked, ("running", "parked"), False),
    (paused, ("running", "parked"), False),
    (source_changed, ("running", "parked"), False),
    (without_progress, ("running", "parked"), False),
    (asleep, ("running", "parked"), False),
    (asks, ("waiting", "parked"), False),
    (asks_paused, ("waiting", "parked"), False),
    (awaits_event, ("waiting", "parked"), False),
    (ambiguous, ("waiting", "parked"), False),
    (answered, ("waiting", "done"), False),
    (ended("completed"), ("completed", "done"), False),
    (ended("failed"), ("failed", "failed"), False),
    (ended("timed_out"), ("timed_out", "failed"), False),
    (ended("cancelled"), ("cancelled", "cancelled"), False),
]
ROWS = pytest.mark.parametrize(("reach", "stands", "held"), TABLE, ids=[row[0].__name__ for row in TABLE])


@ROWS
def test_each_state_is_sound(database, reach, stands, held):
    life = Life(database)
    reach(life)
    life.sound()
    assert (life.stands, life.row.owner_id is not None) == (stands, held)


@ROWS
@pytest.mark.parametrize("control", ["pause", "resume", "cancel", "answer", "restart"])
def test_each_state_accepts_exactly_what_it_allows(database, reach, stands, held, control):
    life = Life(database)
    reach(life)
    standing = life.standing
    if life.row.status in controls.TERMINAL:
        restartable = transitions.restart_refused(database.connection, life.run_id) is None
        standing = controls.Standing(*life.stands, restartable=restartable)
    before = life.row.revision, len(life.ask("SELECT 1 FROM runs"))
    try:
        getattr(life, control)()
    except ConflictError:
        accepted = False
    else:
        accepted = (life.row.revision, len(life.ask("SELECT 1 FROM runs"))) != before
    assert (control in controls.allowed(standing)) == accepted
    if held and accepted:
        life.gone("cancelled") if hasattr(life, "epoch") else None
    life.sound()


@pytest.mark.parametrize("status", controls.TERMINAL)
def test_a_refusal_says_how_the_run_stands(database, status):
    life = Life(database)
    ended(status)(life)
    with pytest.raises(ConflictError, match=rf"run-1: pause is not possible, since it is over \({status}\)"):
        life.pause()


@ROWS
def test_only_what_is_due_and_free_is_claimed(database, reach, stands, held):
    life = Life(database)
    reach(life)
    wanted = reach in (fresh, parked, asleep, awaits_event)
    assert (life.take() is not None) == wanted
    life.sound()
