"""Of a session's interactive runs one at a time is queued, starting or running; the others stand in line."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import transitions
from tests.state.files import NOW
from tests.state.lives import Life


def three(database):
    """Runs of one session, made in this order: the first holds the place."""
    return [Life(database, f"run-{number}", NOW + number, session="notebook-1") for number in (1, 2, 3)]


def test_the_second_is_parked_with_a_reason_and_others_are_not_hindered(database):
    first, second, _ = three(database)
    other = Life(database, "other", session="notebook-2")
    headless = Life(database, "headless")
    assert first.stands == other.stands == headless.stands == ("queued", "queued")
    assert (second.stands, second.row.detail) == (("queued", "parked"), "sessionBusy")
    assert second.take() is None
    second.sound()


@pytest.mark.parametrize("leave", ["completes", "fails", "cancelled", "asks", "sleeps", "paused", "ambiguous", "parks"])
def test_the_place_goes_to_the_oldest_in_line_in_the_same_transaction(database, leave):
    first, second, third = three(database)
    first.take()
    if leave == "completes":
        first.ends("completed")
    elif leave == "fails":
        first.ends("failed", "boom")
    elif leave == "cancelled":
        first.cancel()
    elif leave == "asks":
        first.asks()
    elif leave == "sleeps":
        first.sleeps(NOW + 60_000)
    elif leave == "paused":
        first.pause()
    elif leave == "parks":
        first.gone()
        with database.transaction() as c:
            transitions.park_without_progress(c, first.row, "it crashed", NOW, errors=3)
    else:
        first.acts("manual")
        first.gone()
        with database.transaction() as c:
            transitions.park(c, first.row, NOW, available_at=NOW, errors=1)
        assert first.take() is None
    if leave in ("cancelled", "paused"):
        first.gone("cancelled")
    assert (second.stands, second.row.detail) == (("queued", "queued"), None)
    assert (third.stands, third.row.detail) == (("queued", "parked"), "sessionBusy")
    assert second.events()[-1] == "run.queue_queued"
    first.sound()
    assert second.take() is not None


def test_a_run_that_crashed_goes_on_before_those_that_were_not_begun(database):
    first, second, _ = three(database)
    first.take()
    first.gone()
    with database.transaction() as c:
        transitions.park(c, first.row, NOW, available_at=NOW, errors=1)
    assert second.row.detail == "sessionBusy"
    first.sound()
    assert first.take() is not None


def test_a_run_that_is_due_again_waits_for_whoever_took_its_place(database):
    first, second, third = three(database)
    first.take()
    first.sleeps(NOW + 10)
    second.take()
    first.now = NOW + 20
    assert first.take() is None
    second.now = NOW + 20
    second.ends("completed")
    assert third.row.detail == "sessionBusy"
    assert first.take() is not None
    first.sound()


def test_a_new_run_does_not_overtake_one_that_is_due(database):
    first = Life(database, session="notebook-1")
    first.take()
    first.gone()
    with database.transaction() as c:
        transitions.park(c, first.row, NOW, available_at=NOW, errors=1)
    second = Life(database, "run-2", session="notebook-1")
    assert second.row.detail == "sessionBusy"
    assert first.take() is not None
    first.sound()


def test_whoever_is_paused_in_line_leaves_it_and_comes_back_to_it(database):
    first, second, third = three(database)
    second.pause()
    assert (second.stands, second.row.detail, second.row.paused) == (("queued", "parked"), None, True)
    first.cancel()
    assert third.stands == ("queued", "queued")
    second.resume()
    assert (second.stands, second.row.detail) == (("queued", "parked"), "sessionBusy")
    third.cancel()
    assert second.stands == ("queued", "queued")
    second.sound()


def test_paused_before_its_start_it_holds_no_place_and_takes_it_again(database):
    first, second, _ = three(database)
    first.pause()
    assert second.stands == ("queued", "queued")
    second.cancel()
    assert first.stands == ("queued", "parked")
    Life(database, "run-9", session="notebook-1").sound()
    first.resume()
    assert first.row.detail == "sessionBusy"
    first.sound()


def test_continuations_and_restarts_stand_in_line_too(database):
    first, second, third = three(database)
    first.take()
    first.asks()
    continuation = first.answer("continuation")
    assert continuation.row.detail == "sessionBusy"
    second.take()
    second.ends("failed", "boom")
    assert continuation.stands == ("queued", "queued")
    restart = second.restart()
    assert restart.row.detail == "sessionBusy"
    continuation.cancel()
    assert restart.stands == ("queued", "queued")
    assert third.row.detail == "sessionBusy"
    restart.sound()
