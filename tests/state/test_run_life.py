"""Each transition of a run leaves a file that tells one story, and refuses what does not fit."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import mutation, run_effects, runners, transitions
from pi_workflows_nb.state.run_state import run_state
from pi_workflows_nb.state.steps import Receipt, StepBatch
from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.errors import ConflictError, EffectRequestConflictError, StaleClaimError, StaleResourceError
from pi_workflows_nb.wire.runner_messages import EffectSettlement, End, Finished, Pending, ReserveEffect, Value
from tests.state.files import NOW
from tests.state.lives import Life, move


def test_from_queue_to_end(database):
    life = Life(database)
    life.sound()
    assert (life.row.status, life.row.queue_status) == ("queued", "queued")
    life.take()
    life.sound()
    assert (life.row.status, life.row.queue_status) == ("running", "running")
    life.step(move(started=life.started("n")))
    life.sound()
    life.step(move(finished=life.finished(), started=life.started("n")))
    life.sound()
    life.step(move(finished=life.finished(), end=End(None, None, None, None, None, "completed")))
    life.gone()
    life.sound()
    assert (life.row.status, life.row.queue_status, life.row.owner_id) == ("completed", "done", None)
    assert life.take() is None


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled"])
def test_every_other_end_sweeps_what_depends_on_the_run(database, status):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n", "action")))
    wish = ReserveEffect(life.attempt, "t.create", "k", "manual", Value())
    with database.transaction() as c:
        given = run_effects.reserve(c, life.row, life.claim, wish, payload({}, wish), NOW)
    life.step(move(finished=life.finished("failed", error="boom"), end=End(None, None, "boom", None, None, status)))
    life.gone()
    life.sound()
    assert run_effects.read(database.connection, given.effect_id).status == "ambiguous"
    assert life.row.status == status


def test_a_refused_proposal_changes_nothing(database):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n")))
    before = list(database.connection.iterdump())
    stale = mutation.Claim(**{**life.claim.__dict__, "token": "another"})
    with pytest.raises(StaleClaimError) as told:
        life.step(move(finished=life.finished()), claim=stale)
    assert told.value.reason == "tokenChanged"
    with pytest.raises(StaleResourceError):
        life.step(move(finished=life.finished()), expected=1)
    with pytest.raises(ConflictError):
        life.step(move(started=life.started("n")))
    life.now += transitions.RUN_LEASE_MS
    with pytest.raises(StaleClaimError) as told:
        life.step(move(finished=Finished(life.attempt, None, None, NOW, "n", "ok", None, True)))
    assert told.value.reason == "expired"
    assert list(database.connection.iterdump()) == before


def test_an_attempt_that_starts_and_ends_in_one_batch_is_one_row(database):
    life = Life(database)
    life.take()
    with database.transaction() as c:
        batch = StepBatch(c, NOW)
        revision = life.revision(c)
        batch.apply(life.run_id, life.claim, revision, move(started=life.started("n")), None, None)
        for _ in range(5):
            cursor = batch.cursor(life.run_id, life.claim)
            receipt = Receipt(life.epoch, identities.new_id(), bytes(32))
            snapshot = move(finished=life.finished(), started=life.started("n"))
            batch.apply(life.run_id, life.claim, cursor.revision, snapshot, (identities.sha256(b"1"), b"1"), receipt)
        batch.flush()
    life.sound()
    counted = database.connection.execute("SELECT status, count(*) FROM node_attempts GROUP BY status").fetchall()
    assert dict(counted) == {"completed": 5, "running": 1}
    assert database.connection.execute("SELECT count(*) FROM run_steps").fetchone() == (5,)


def test_pause_keeps_the_boundary_and_resume_goes_on(database):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n")))
    with database.transaction() as c:
        transitions.pause(c, life.run_id, NOW, "me")
    life.gone()
    life.sound()
    assert life.take() is None
    with database.transaction() as c:
        transitions.resume(c, life.run_id, NOW, "me")
    life.sound()
    assert life.take().generation == 2
    state = run_state(database.connection, life.run_id, NOW)
    assert state.pending == Pending(None, "n", 0)
    life.sound()


def test_cancel_fences_the_holder(database):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n")))
    with database.transaction() as c:
        transitions.cancel(c, life.run_id, NOW, "me", "enough")
    with pytest.raises(StaleClaimError):
        life.step(move(finished=life.finished()))
    life.gone()
    life.sound()
    with database.transaction() as c:
        transitions.cancel(c, life.run_id, NOW, "me", "enough")
    assert life.row.status == "cancelled"


def test_an_answer_makes_exactly_one_continuation(database):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("ask", "checkpoint")))
    life.step(move(finished=life.finished(), end=End("ask", None, None, None, None, "waiting")))
    life.gone()
    life.sound()
    with database.transaction() as c:
        transitions.answer(c, life.run_id, "run-2", b'"yes"', NOW)
    life.sound()
    with pytest.raises(ConflictError), database.transaction() as c:
        transitions.answer(c, life.run_id, "run-3", b'"no"', NOW)
    state = run_state(database.connection, "run-2", NOW)
    assert [bytes(step.output.inline) for step in state.steps] == [b'"yes"']
    assert state.pending is None
    assert bytes(run_state(database.connection, "run-1", NOW).steps[0].output.inline) == b"1"


def payload(request, wish):
    return run_effects.payload_of(wish.recovery, canonical_json.encode(request))


def applying(database, recovery):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n", "action")))
    wish = ReserveEffect(life.attempt, "t.create", "k", recovery, Value())
    with database.transaction() as c:
        given = run_effects.reserve(c, life.row, life.claim, wish, payload({"x": 1}, wish), NOW)
    assert given.state == "apply"
    life.sound()
    with database.transaction() as c:
        runners.record_exit(c, life.epoch, "crashed", None, "SIGKILL", "", NOW)
        transitions.park(c, life.row, NOW, available_at=NOW, errors=1)
    return life, wish, given


def test_an_idempotent_effect_is_applied_again_under_its_key(database):
    life, wish, given = applying(database, "idempotent")
    life.sound()
    life.take()
    life.sound()
    with database.transaction() as c:
        with pytest.raises(EffectRequestConflictError):
            run_effects.reserve(c, life.row, life.claim, wish, payload({"x": 2}, wish), NOW)
        again = run_effects.reserve(c, life.row, life.claim, wish, payload({"x": 1}, wish), NOW)
    assert (again.state, again.attempt_number, again.effect_id) == ("apply", 2, given.effect_id)
    life.step(move(started=life.started("n", "action")))
    settlement = EffectSettlement(given.effect_id, None, "applied")
    life.step(move(finished=life.finished(effect=settlement), end=End(None, None, None, None, None, "completed")))
    life.gone()
    life.sound()


@pytest.mark.parametrize("action", ["confirm", "retry"])
def test_a_manual_effect_waits_for_a_person(database, action):
    life, wish, given = applying(database, "manual")
    assert life.take() is None
    life.sound()
    assert (life.row.status, life.row.queue_status, life.row.error_code) == ("waiting", "parked", "effectAmbiguous")
    with database.transaction() as c:
        run_effects.recover(c, run_effects.read(c, given.effect_id), action, None, NOW)
        assert not run_effects.ambiguous(c, life.row)
        transitions.resume_after_effect(c, life.row, NOW)
    life.sound()
    life.take()
    with database.transaction() as c:
        again = run_effects.reserve(c, life.row, life.claim, wish, payload({"x": 1}, wish), NOW)
    assert again.state == ("applied" if action == "confirm" else "apply")
    life.sound()
    with pytest.raises(ConflictError), database.transaction() as c:
        run_effects.recover(c, run_effects.read(c, given.effect_id), "confirm", None, NOW)


def test_a_failed_try_is_told_to_the_next_runner(database):
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n")))
    life.step(move(finished=life.finished("failed", step=False, error="once")))
    life.sound()
    with database.transaction() as c:
        runners.record_exit(c, life.epoch, "crashed", None, "SIGKILL", "", NOW)
        transitions.park(c, life.row, NOW, available_at=NOW, errors=1)
    life.sound()
    assert run_state(database.connection, life.run_id, NOW).pending == Pending(NOW, "n", 1)
