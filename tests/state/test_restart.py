"""A run that is over is started once more: three times in a chain, once for each, and not to end in the same way."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import runs, transitions_chain
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import ConflictError
from tests.state.lives import Life


def fails(life, error):
    life.take()
    life.run_one()
    life.ends("failed", error)
    return life


def test_a_restart_is_a_new_run_of_the_same_input_from_the_first_node(database):
    first = fails(Life(database), "boom")
    again = first.restart()
    again.sound()
    assert again.stands == ("queued", "queued")
    assert again.ask("SELECT parent_run_id, root_run_id, lineage_kind, restart_number FROM runs WHERE run_id = ?",
                     again.run_id) == [("run-1", "run-1", "restart", 1)]  # fmt: skip
    assert again.ask("SELECT count(DISTINCT input_hash), count(DISTINCT launch_options_hash) FROM runs") == [(1, 1)]
    again.take()
    again.run_one()
    again.ends("completed")
    again.sound()


def test_its_id_and_its_parents_fingerprint_follow_from_how_the_parent_ended(database):
    first = fails(Life(database), "boom")
    fingerprint = identities.fingerprint(
        {"error": "boom", "finalOutput": None, "input": {}, "reason": None, "status": "failed",
         "workflowRef": "inline:w"}
    )  # fmt: skip
    assert transitions_chain.terminal_fingerprint(database.connection, "run-1") == fingerprint
    again = first.restart()
    assert again.run_id == identities.restart_run_id("run-1", fingerprint)
    assert again.ask("SELECT parent_terminal_fingerprint FROM runs WHERE run_id = ?", again.run_id) == [(fingerprint,)]


def test_a_run_is_restarted_once(database):
    first = fails(Life(database), "boom")
    again = first.restart()
    with pytest.raises(ConflictError, match=f"it was, as {again.run_id}"):
        first.restart()


def test_three_restarts_are_the_most_in_a_chain(database):
    life = fails(Life(database), "error 0")
    for number in (1, 2, 3):
        life = fails(life.restart(), f"error {number}")
        assert life.ask("SELECT restart_number FROM runs WHERE run_id = ?", life.run_id) == [(number,)]
    with pytest.raises(ConflictError, match="3 times"):
        life.restart()
    life.sound()


def test_restarts_are_counted_through_continuations(database):
    life = Life(database)
    for number in range(3):
        life = fails(life, f"error {number}").restart()
    life.take()
    life.asks()
    last = life.answer("answered")
    last.take()
    last.ends("failed", "another")
    with pytest.raises(ConflictError, match="3 times"):
        last.restart()


def test_a_run_that_ended_as_one_before_it_is_not_restarted(database):
    again = fails(fails(Life(database), "boom").restart(), "boom")
    with pytest.raises(ConflictError, match="run-1 before it ended in the same way"):
        again.restart()


@pytest.mark.parametrize("reach", ["queued", "running", "asks", "cancelled"])
def test_only_what_is_over_and_was_not_cancelled_is_restarted(database, reach):
    life = Life(database)
    if reach != "queued":
        life.take()
    if reach == "asks":
        life.asks()
    if reach == "cancelled":
        life.cancel()
    with pytest.raises(ConflictError, match="cannot be restarted"):
        life.restart()
    assert len(life.ask("SELECT 1 FROM runs")) == 1


def test_a_completed_run_and_one_that_ran_out_of_time_can_be_restarted(database):
    for status in ("completed", "timed_out"):
        life = Life(database, status)
        life.take()
        life.ends(status, None if status == "completed" else "late")
        assert runs.read(database.connection, life.restart().run_id).status == "queued"
    life.sound()
