"""Sleeping and waiting for an event, in rows: the attempt stays open until somebody, or time, ends it."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import blobs, transitions, waits
from pi_workflows_nb.state.run_state import run_state
from pi_workflows_nb.wire.errors import ConflictError
from tests.state.files import NOW
from tests.state.lives import Life

SOON = NOW + 60_000


def attempt(life, node):
    return life.ask("SELECT status, deadline_at, finished_at FROM node_attempts WHERE node_id = ?", node)


def begun(database):
    life = Life(database)
    life.take()
    return life


def test_a_sleep_keeps_its_attempt_open_and_holds_no_claim(database):
    life = begun(database)
    life.run_one()
    life.sleeps(SOON)
    life.sound()
    assert (life.stands, life.row.owner_id, life.row.available_at) == (("running", "parked"), None, SOON)
    assert attempt(life, "nap") == [("waiting", SOON, None)]
    assert life.events()[-3:] == ["node_started", "run_sleeping", "run.queue_parked"]


def test_the_next_claim_ends_the_sleep_as_a_step(database):
    life = begun(database)
    life.sleeps(SOON)
    life.now = SOON
    life.take()
    life.sound()
    assert attempt(life, "nap") == [("completed", SOON, SOON)]
    state = run_state(database.connection, life.run_id, NOW)
    assert ([step.node_id for step in state.steps], state.pending) == (["nap"], None)
    assert bytes(state.steps[0].output.inline) == b"null"


def test_a_clock_that_was_set_back_leaves_no_attempt_that_ended_before_it_began(database):
    life = begun(database)
    life.sleeps(SOON)
    life.now = NOW - 3_600_000
    life.take()
    assert attempt(life, "nap") == [("completed", SOON, NOW)]
    life.sound()


def test_a_pause_keeps_the_sleep_and_a_resume_goes_on_with_it(database):
    life = begun(database)
    life.sleeps(SOON)
    life.pause()
    life.sound()
    assert attempt(life, "nap") == [("waiting", SOON, None)]
    assert life.take() is None
    life.now = NOW + 1
    life.resume()
    life.sound()
    assert (life.row.available_at, attempt(life, "nap")[0][0]) == (SOON, "waiting")


def test_a_cancelled_sleep_is_over(database):
    life = begun(database)
    life.sleeps(SOON)
    life.cancel()
    life.sound()
    assert attempt(life, "nap")[0][0] == "cancelled"


def test_a_retry_that_is_not_due_yet_parks_the_run_without_an_open_attempt(database):
    life = begun(database)
    life.step(start(life))
    life.step(again(life))
    life.gone("exited")
    life.sound()
    assert (life.stands, life.row.available_at) == (("running", "parked"), SOON)
    assert run_state(database.connection, life.run_id, NOW).pending.tries == 1
    life.now = SOON
    assert life.take() is not None


def start(life):
    from tests.state.lives import move

    return move(started=life.started())


def again(life):
    from tests.state.lives import end, move

    return move(finished=life.finished("failed", step=False, error="once more"), end=end("sleeping", due_at=SOON))


@pytest.mark.parametrize("due", [None, SOON])
def test_a_wait_for_an_event_is_a_waiting_run_with_an_open_attempt(database, due):
    life = begun(database)
    life.awaits(due)
    life.sound()
    assert (life.stands, life.standing.waits_for) == (("waiting", "parked"), "event")
    assert attempt(life, "event") == [("waiting", due, None)]


def test_a_given_event_ends_the_attempt_and_a_continuation_goes_on_with_the_value(database):
    life = begun(database)
    life.run_one()
    life.awaits(SOON)
    heir = life.answer(value=b'{"n":1}')
    heir.sound()
    assert (life.stands, heir.stands) == (("waiting", "done"), ("queued", "queued"))
    assert attempt(life, "event")[0][0] == "completed"
    state = run_state(database.connection, heir.run_id, NOW)
    assert [bytes(step.output.inline) for step in state.steps] == [b"1", b'{"n":1}']
    assert state.pending is None
    with pytest.raises(ConflictError, match="answered"):
        life.answer("run-3")


def test_an_event_that_is_late_times_its_node_out_and_the_run_goes_on_itself(database):
    life = begun(database)
    life.awaits(SOON)
    life.now = SOON
    assert life.take() is not None
    life.sound()
    assert attempt(life, "event") == [("timed_out", SOON, SOON)]
    state = run_state(database.connection, life.run_id, NOW)
    assert [(step.outcome, step.output) for step in state.steps] == [("timed_out", None)]
    assert "no event came within 60 s" in state.steps[0].error
    assert "node_timed_out" in life.events()


def test_a_wait_without_an_end_never_ends_by_itself(database):
    life = begun(database)
    life.awaits(None)
    life.now = SOON
    assert life.take() is None
    assert life.stands == ("waiting", "parked")


def test_a_paused_wait_does_not_end(database):
    life = begun(database)
    life.awaits(SOON)
    life.pause()
    life.now = SOON
    assert life.take() is None
    with pytest.raises(ConflictError, match="paused"):
        life.answer()
    life.resume()
    assert (life.stands, life.row.available_at) == (("waiting", "parked"), SOON)
    assert life.take() is not None


def test_an_event_that_comes_after_its_time_is_refused(database):
    life = begun(database)
    life.awaits(SOON)
    life.now = SOON
    with pytest.raises(ConflictError, match="the time for its event is over"):
        life.answer()
    life.sound()


def test_a_signal_finds_who_waits_for_its_name_now(database):
    lives = [Life(database, f"run-{number}", NOW + number) for number in range(5)]
    for life, due in zip(lives, (None, SOON, SOON, NOW + 10, None), strict=True):
        life.take()
        life.awaits(due)
    lives[2].pause()
    lives[4].answer("heir")
    project = lives[0].row.project_id
    found = waits.for_event(database.connection, project, "go", NOW + 20)
    assert [wait.run_id for wait in found] == ["run-0", "run-1"]
    assert waits.for_event(database.connection, project, "stop", NOW) == []
    assert waits.for_event(database.connection, "project-x", "go", NOW) == []


def test_a_plain_checkpoint_is_no_event(database):
    life = begun(database)
    life.asks()
    assert waits.for_event(database.connection, life.row.project_id, "go", NOW) == []
    assert life.does(lambda c, run_id, now: transitions.expire_event(c, life.row, now)) is False
    output = life.answer(value=b"7")
    steps = output.ask("SELECT output_override_hash FROM run_steps WHERE run_id = ?", output.run_id)
    assert blobs.read_json(database.connection, steps[-1][0]) == 7
