"""What a new owner makes of the runs that the one before left."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import mutation, run_effects, transitions_recovery
from tests.state.files import NOW
from tests.state.lives import Life, move
from tests.state.test_run_claims import submitted

LATER = NOW + 3_600_000


def left(database, run_id="run-1", **given):
    """A run that was executing when its server died."""
    life = Life(database, run_id, **given)
    life.take()
    life.run_one()
    life.step(move(started=life.started("m")))
    return life


def recover(*lives):
    for life in lives:
        life.now = LATER
        life.gone("orphaned")
    with lives[0].database.transaction() as c:
        changed = transitions_recovery.recover(c, LATER)
    lives[0].sound()
    return changed


def test_a_run_that_was_cut_off_is_due_at_its_boundary_and_counts_no_error(database):
    life = left(database)
    assert recover(life) == {"run-1"}
    assert (life.stands, life.row.available_at, life.row.consecutive_errors) == (("running", "parked"), LATER, 0)
    assert life.ask("SELECT node_id, status FROM node_attempts ORDER BY rowid") == [
        ("n", "completed"), ("m", "interrupted"),
    ]  # fmt: skip
    assert life.take().generation == 2


@pytest.mark.parametrize(("recovery", "stands"), [("manual", "waiting"), ("idempotent", "running")])
def test_effects_are_read_before_their_runs_are_judged(database, recovery, stands):
    life = Life(database)
    life.take()
    effect = life.acts(recovery)
    recover(life)
    assert life.stands == (stands, "parked")
    status = "ambiguous" if recovery == "manual" else "pending"
    assert run_effects.read(database.connection, effect).status == status


def test_an_effect_of_a_run_that_was_paused_meanwhile_is_settled_too(database):
    life = Life(database)
    life.take()
    life.acts("manual")
    life.pause()
    recover(life)
    assert (life.stands, life.row.paused, life.standing.waits_for) == (("waiting", "parked"), True, "effect")
    life.resume()
    assert life.row.error_code == "effectAmbiguous"
    life.sound()


def test_events_that_were_due_meanwhile_have_not_come(database):
    life = Life(database)
    life.take()
    life.awaits(NOW + 10)
    other = Life(database, "patient")
    other.take()
    other.awaits(LATER + 10)
    assert recover(life, other) == {"run-1"}
    assert (life.stands, other.stands) == (("running", "parked"), ("waiting", "parked"))


def test_a_validation_that_was_cut_off_lets_the_run_go(database):
    life = submitted(database)
    with database.transaction() as c:
        mutation.claim_lease(c, life.row.resource_id, "host", "host-a", 30_000, NOW)
        revision = mutation.bump(c, life.row.resource_id, life.row.revision, NOW)
        mutation.record_event(c, life.row.resource_id, revision, "lease.claimed", "host", "host-a", {}, NOW, 2)
    with database.transaction() as c:
        assert transitions_recovery.recover(c, LATER) == {"run-1"}
    life.sound()
    assert (life.row.owner_id, life.events()[-1]) == (None, "lease.released")
    assert life.ask("SELECT outcome FROM interactive_submissions") == [("validating",)]


def test_whoever_stands_in_line_behind_a_run_that_was_cut_off_waits_on(database):
    first = left(database, session="notebook-1")
    second = Life(database, "run-2", session="notebook-1")
    recover(first)
    assert second.row.detail == "sessionBusy"
    assert first.take() is not None


def test_a_second_recovery_changes_nothing(database):
    life = left(database)
    recover(life)
    before = list(database.connection.iterdump())
    with database.transaction() as c:
        assert transitions_recovery.recover(c, LATER) == set()
    assert list(database.connection.iterdump()) == before
