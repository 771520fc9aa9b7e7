"""Claims of a run: to execute, to validate, to control; and why one is lost."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import mutation, run_effects, transitions, transitions_recovery
from pi_workflows_nb.wire.errors import ConflictError, StaleClaimError
from tests.state.files import NOW, Story
from tests.state.lives import Life, move

LATER = NOW + 31_000
SOON = NOW + 60_000


def submitted(database):
    """A run that waits for its session, with a submission that is being validated."""
    life = Life(database)
    life.take()
    life.step(move(started=life.started("n", "agent")))
    story = Story(database.connection)
    with database.transaction() as c:
        content = story.json({})
        story.insert(
            "interactive_requests", request_id="r", run_id=life.run_id, attempt_id=life.attempt, kind="agent",
            target_session_id="s", contract_hash=content, status="pending", created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        story.insert(
            "interactive_submissions", submission_id="sub", request_id="r", idempotency_key="k", request_revision=1,
            payload_hash=content, outcome="validating", submitted_at=NOW,
        )  # fmt: skip
        c.execute("UPDATE node_attempts SET status = 'waiting'")
        c.execute("UPDATE runs SET status = 'waiting', finished_at = ?", (NOW,))
        c.execute("UPDATE run_queue SET status = 'parked'")
        mutation.clear_lease(c, life.row.resource_id)
    life.gone("exited")
    return life


def test_a_run_that_waits_for_its_session_is_not_executed(database):
    life = submitted(database)
    assert life.standing.waits_for == "request"
    assert life.take() is None
    with database.transaction() as c:
        c.execute("UPDATE runs SET status = 'running', finished_at = NULL")
    assert life.take() is None


def test_a_validation_holds_the_run_where_it_waits(database):
    life = submitted(database)
    with database.transaction() as c:
        claim = transitions.claim_for_validation(c, life.run_id, "host-a", NOW)
    assert (life.stands, life.row.owner_id, life.row.generation) == (("waiting", "parked"), "host-a", 2)
    life.sound()
    with database.transaction() as c:
        assert transitions.claim_for_validation(c, life.run_id, "host-b", NOW) is None
        transitions.release(c, life.run_id, claim, LATER)
    assert (life.row.owner_id, life.events()[-2:]) == (None, ["lease.claimed", "lease.released"])
    life.sound()


def test_nothing_is_validated_of_a_run_that_is_paused_or_asks_nothing(database):
    life = submitted(database)
    life.pause()
    with pytest.raises(ConflictError, match="paused"):
        life.does(lambda c, run_id, now: transitions.claim_for_validation(c, run_id, "host-a", now))
    life.resume()
    assert life.stands == ("waiting", "parked")
    with database.transaction() as c:
        c.execute("UPDATE interactive_submissions SET outcome = 'rejected'")
    with pytest.raises(ConflictError, match="no submission"):
        life.does(lambda c, run_id, now: transitions.claim_for_validation(c, run_id, "host-a", now))


@pytest.mark.parametrize("control", ["pause", "cancel"])
def test_a_control_of_an_expired_run_claims_it_first(database, control):
    life = Life(database)
    life.take()
    life.step(move(started=life.started()))
    life.now = LATER
    getattr(life, control)()
    assert life.row.owner_id is None
    found = life.ask("SELECT event_type, actor_type, actor_id, lease_generation FROM events ORDER BY event_seq DESC")
    assert found[1] == ("lease.claimed", "system", "workflow-control", 2)
    assert found[0][:2] == (("run.paused" if control == "pause" else "run.queue_cancelled"), "control")
    if control == "cancel":
        assert found[0][3] == 2
        assert life.ask(
            "SELECT CAST(b.content AS TEXT) FROM events e JOIN blobs b ON b.blob_hash = e.payload_hash"
            " WHERE event_type = 'run.queue_cancelled'"
        ) == [('{"code":"cancelled","staleControl":true,"status":"cancelled"}',)]
    life.gone("orphaned")
    life.sound()


def test_a_control_of_a_live_run_acts_under_the_claim_it_has(database):
    life = Life(database)
    life.take()
    life.pause()
    assert life.row.generation == 1
    assert "lease.claimed" not in life.events()[-1:]


def lost(life, claim, now=NOW):
    with pytest.raises(StaleClaimError) as told, life.database.transaction() as c:
        mutation.check_lease(c, claim, now)
    return told.value.reason


def test_a_lost_claim_says_why(database):
    life = Life(database)
    claim = life.take()
    assert lost(life, claim, LATER) == "expired"
    assert lost(life, mutation.Claim(**{**claim.__dict__, "token": "another"})) == "tokenChanged"
    assert lost(life, mutation.Claim(**{**claim.__dict__, "owner_id": "host-z"})) == "ownerChanged"
    life.now = LATER
    life.gone("claimLost")
    life.take()
    assert lost(life, claim, LATER) == "generationChanged"
    life.pause()
    assert lost(life, life.claim, LATER) == "missingAuthority"


def test_a_claim_that_comes_too_early_leaves_the_effects_of_the_holder_alone(database):
    life = Life(database)
    life.take()
    life.acts("manual")
    other = Life(database, made=True)
    assert other.take() is None
    assert life.ask("SELECT status FROM effects") == [("applying",)]
    assert life.stands == ("running", "running")
    life.gone()
    other.now = LATER
    assert other.take() is None, "by then it may have happened"
    assert life.ask("SELECT status FROM effects") == [("ambiguous",)]
    life.sound()


def test_an_expired_claim_cannot_renew_itself(database):
    life = Life(database)
    claim = life.take()
    with pytest.raises(StaleClaimError), database.transaction() as c:
        mutation.renew_lease(c, claim, LATER)


def test_losing_a_claim_is_a_handover(database):
    life = Life(database)
    life.take()
    life.run_one()
    life.now = LATER
    life.gone("claimLost")
    assert life.take().generation == 2
    assert (life.stands, life.row.consecutive_errors) == (("running", "running"), 0)
    life.sound()


def awaiting(life):
    life.take()
    life.awaits(SOON)


def in_doubt(life):
    life.take()
    life.acts("manual")
    life.gone()
    with life.database.transaction() as c:
        run_effects.settle_uncertain(c, life.row, NOW)
        transitions.park_ambiguous(c, life.row, NOW)


def asking(life):
    life.take()
    life.asks()


def answer(c, life):
    transitions.answer(c, life.run_id, "run-2", b"1", life.now)


def word_on_the_effect(c, life):
    effect = run_effects.read(c, c.execute("SELECT effect_id FROM effects").fetchone()[0])
    run_effects.recover(c, effect, "confirm", None, life.now)
    transitions.resume_after_effect(c, life.row, life.now)


def cancel(c, life):
    transitions.cancel(c, life.run_id, life.now, "me", "enough")


def pause(c, life):
    transitions.pause(c, life.run_id, life.now, "me")


def recover(c, life):
    transitions_recovery.recover(c, SOON)


@pytest.mark.parametrize(("wait", "act", "stands"), [
    (asking, answer, ("waiting", "done")),
    (awaiting, answer, ("waiting", "done")),
    (in_doubt, word_on_the_effect, ("running", "parked")),
    (asking, cancel, ("cancelled", "cancelled")),
    (asking, pause, ("waiting", "parked")),
    (awaiting, recover, ("running", "parked")),
])  # fmt: skip
@pytest.mark.parametrize("passed", [0, 40_000], ids=["live", "expired"])
def test_whoever_acts_on_a_held_wait_fences_its_holder(database, wait, act, stands, passed):
    life = Life(database)
    wait(life)
    with database.transaction() as c:
        claim = transitions.hold_for_control(c, life.run_id, "host-b", NOW)
    life.now = NOW + passed
    with database.transaction() as c:
        act(c, life)
    assert (life.stands, life.row.owner_id) == (stands, None)
    assert lost(life, claim, SOON) == "missingAuthority"
    life.sound()


def test_a_wait_that_is_over_goes_on_when_nobody_holds_it(database):
    life = Life(database)
    awaiting(life)
    with database.transaction() as c:
        claim = transitions.hold_for_control(c, life.run_id, "host-b", SOON - 1)
    life.now = SOON
    before = list(database.connection.iterdump())
    assert life.take() is None
    assert list(database.connection.iterdump()) == before
    life.now = claim.expires_at
    assert life.take().generation == 3
    assert life.stands == ("running", "running")
    life.sound()


def test_a_hold_outlasts_a_resume_in_place(database):
    life = Life(database)
    asking(life)
    life.pause()
    with database.transaction() as c:
        claim = transitions.hold_for_control(c, life.run_id, "host-b", NOW)
    life.resume()
    life.sound()
    with database.transaction() as c:
        transitions.release(c, life.run_id, claim, NOW)
    life.sound()
