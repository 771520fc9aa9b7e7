"""What the end of a runner means for its run: due again at once, in a second, or not before somebody acts."""

from __future__ import annotations

import signal

import pytest

from pi_workflows_nb.server.launch import Progress
from pi_workflows_nb.server.runner_exit import cause_of, park_after_exit
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire.runner_messages import Exiting
from tests.state.files import NOW
from tests.state.lives import Life


@pytest.fixture
def life(state_file):
    database = Database.open(state_file, NOW)
    yield Life(database)
    database.close()


def exits(life, status, outcome="crashed", *, finished=0, exiting=None, spawned=True, **progress):
    """A generation of the run, up to the end of its runner."""
    assert life.take() is not None
    for _ in range(finished):
        life.run_one()
    life.gone("exited" if outcome == "exited" else "crashed")
    made = Progress(boundaries=finished, exiting=exiting, **progress)
    with life.database.transaction() as c:
        park_after_exit(c, life.row, made, outcome, cause_of(status, spawned, made), life.now)
    life.sound()
    row = life.row
    life.now = max(life.now, row.available_at)
    return row


CRASH = pytest.mark.parametrize("status", [-signal.SIGKILL, -signal.SIGSEGV, 1, 137])


@CRASH
def test_a_crash_parks_the_run_and_makes_it_due_at_once_then_in_a_second(life, status):
    first = exits(life, status)
    assert (first.status, first.queue_status, first.available_at, first.consecutive_errors) == (
        "running", "parked", NOW, 1,
    )  # fmt: skip
    second = exits(life, status)
    assert (second.available_at, second.consecutive_errors) == (NOW + 1000, 2)


@CRASH
def test_the_third_in_a_row_without_a_finished_node_waits_for_a_resume(life, status):
    for _ in range(2):
        exits(life, status)
    third = exits(life, status)
    assert (third.error_code, third.consecutive_errors) == ("runnerNoProgress", 3)
    assert "3 times without finishing a node" in third.detail
    assert life.take() is None
    life.resume()
    assert (life.row.consecutive_errors, life.row.error_code) == (0, None)
    assert life.take() is not None


def test_a_finished_node_starts_the_count_anew(life):
    for _ in range(4):
        row = exits(life, -signal.SIGKILL, finished=1)
        assert (row.error_code, row.consecutive_errors) == (None, 1)


def test_a_claim_or_a_started_node_is_no_progress(life):
    from tests.state.lives import move

    for number in range(3):
        life.take()
        life.step(move(started=life.started()))
        life.gone()
        with life.database.transaction() as c:
            park_after_exit(c, life.row, Progress(), "crashed", cause_of(1, True, Progress()), life.now)
        life.now = max(life.now, life.row.available_at)
        assert life.row.consecutive_errors == number + 1
    assert life.row.error_code == "runnerNoProgress"


def test_an_exit_with_code_0_and_nothing_done_parks_at_once(life):
    row = exits(life, 0, "exited", exiting=Exiting(None, "done"))
    assert (row.error_code, row.consecutive_errors) == ("runnerNoProgress", 1)


@pytest.mark.parametrize(
    ("status", "outcome", "spawned"), [(None, "crashed", True), (-15, "cancelled", True), (-9, "claimLost", True)]
)
def test_the_end_of_the_nursery_or_the_server_counts_for_no_run(life, status, outcome, spawned):
    for _ in range(4):
        row = exits(life, status, outcome, spawned=spawned)
        assert (row.error_code, row.consecutive_errors, row.available_at) == (None, 0, NOW)


def test_a_node_that_was_given_up_is_no_crash(life):
    assert exits(life, -signal.SIGKILL, "timedOut", abandoned=True).consecutive_errors == 0


def test_a_source_that_changed_parks_the_run_with_the_reason(life):
    row = exits(life, 0, "exited", exiting=Exiting("it makes another graph", "sourceChanged"))
    assert (row.error_code, row.detail) == ("workflowSourceChanged", "it makes another graph")
    assert life.take() is None
    life.resume()
    assert life.take() is not None


def test_what_never_started_is_tried_again_in_a_second(life):
    row = exits(life, None, spawned=False)
    assert (row.available_at, row.error_code) == (NOW + 1000, None)
