"""A clock that is set, or a machine that sleeps, in rows: what is a while stays one, a moment stays that moment."""

from __future__ import annotations

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import clock_set
from tests.state.files import NOW
from tests.state.lives import Life, end, move

HOUR = 3_600_000
SOON = NOW + 60_000


def due(life):
    return life.row.available_at


def deadline(life):
    return life.ask("SELECT max(deadline_at) FROM node_attempts WHERE run_id = ?", life.run_id)[0][0]


def begun(database, name):
    life = Life(database, name)
    life.take()
    return life


def moved(life, by, asleep=0):
    with life.database.transaction() as connection:
        clock_set.move(connection, by, asleep)
    life.sound()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_who_sleeps_for_a_while_or_waits_for_an_event_does_so_for_as_long_as_ever(database, by):
    nap, event = begun(database, "nap"), begun(database, "event")
    nap.sleeps(SOON)
    event.awaits(SOON)
    moved(nap, by)
    assert [(due(life), deadline(life)) for life in (nap, event)] == [(SOON + by, SOON + by)] * 2


def test_a_while_counts_from_when_it_is_recorded(database):
    life = begun(database, "nap")
    life.step(move(started=life.started("nap"), end=end("sleeping", pause_ms=5000, detail="nap")))
    assert (due(life), deadline(life)) == (NOW + 5000, NOW + 5000)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_who_sleeps_until_a_moment_means_that_moment(database, by):
    night = begun(database, "night")
    night.sleeps(SOON, "night")
    moved(night, by)
    assert (due(night), deadline(night)) == (SOON, SOON)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_claims_and_nodes_last_as_long_as_ever(database, by):
    life = begun(database, "busy")
    life.step(move(started=life.started()))
    with database.transaction() as connection:
        connection.execute("UPDATE node_attempts SET deadline_at = ?", (SOON,))
    before = life.row.expires_at
    moved(life, by)
    assert (life.row.expires_at, deadline(life)) == (before + by, SOON + by)


def test_a_machine_that_sleeps_takes_time_from_sleeps_alone(database):
    nap, busy = begun(database, "nap"), begun(database, "busy")
    nap.sleeps(NOW + 2 * HOUR)
    busy.step(move(started=busy.started()))
    before = busy.row.expires_at
    moved(nap, HOUR, HOUR)
    assert due(nap) == NOW + 2 * HOUR, "of two hours one has passed"
    assert busy.row.expires_at == before + HOUR


def test_a_clock_set_while_the_machine_slept_moves_a_while_by_what_was_set(database):
    nap = begun(database, "nap")
    nap.sleeps(SOON)
    moved(nap, 3 * HOUR, HOUR)
    assert due(nap) == SOON + 2 * HOUR
    nap.now = due(nap)
    assert nap.take() is not None


def queued(store):
    return {(entry.resource_manager, entry.key): entry.available_at for entry in store.list_queue()}


@pytest.fixture
def resting(database, tmp_path):
    """A store with a resource that rests for an hour and one of a schedule that waits for a moment in an hour."""
    store = SqliteResourceManagerStore(database, tmp_path, clock=lambda: NOW)
    for manager in ("box", "schedule"):
        store.put_resource(manager, "one", {})
        claim = store.claim_next([manager], "somebody", 60_000)
        assert store.requeue_claim(claim, NOW + HOUR)
    return store


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_resource_rests_for_as_long_as_ever_and_a_schedule_looks_at_the_new_clock(database, resting, by):
    with database.transaction() as connection:
        clock_set.move(connection, by)
    assert queued(resting) == {("box", "one"): NOW + by + HOUR, ("schedule", "one"): NOW + by}


def test_a_sleep_of_the_machine_is_a_rest_too(database, resting):
    before = queued(resting)
    with database.transaction() as connection:
        clock_set.move(connection, HOUR, HOUR)
    assert queued(resting) == before


def test_a_rest_that_a_clock_wrote_that_is_set_back_at_the_start_counts_from_then(database, resting):
    with database.transaction() as connection:
        clock_set.catch_up(connection, NOW - 10 * HOUR)
    assert set(queued(resting).values()) == {NOW - 9 * HOUR}
    with database.transaction() as connection:
        clock_set.catch_up(connection, NOW + HOUR)
    assert set(queued(resting).values()) == {NOW - 9 * HOUR}, "a clock that went on changes nothing"
