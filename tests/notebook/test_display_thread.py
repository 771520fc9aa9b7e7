"""One thread draws all views: the newest wish of each, not more often than it should, and no longer than needed."""

from __future__ import annotations

import threading
import time

from pi_workflows_nb.notebook.display_thread import PERIOD, DisplayThread, Worker

OURS = {"pi-workflows-display", "pi-workflows-actions"}
"""Threads of servers and clients that a failed test left are none of these tests' business."""


def names():
    return [thread.name for thread in threading.enumerate() if thread.name in OURS]


def settled(condition):
    give_up = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_the_newest_wish_of_each_view_is_carried_out():
    display, done = DisplayThread(), []
    display.enter()
    started, go_on = threading.Event(), threading.Event()
    display.post("first", lambda: (started.set(), go_on.wait()))
    started.wait()
    for number in range(1_000):
        display.post("a", lambda number=number: done.append(("a", number)))
        display.post("b", lambda number=number: done.append(("b", number)))
    go_on.set()
    assert display.flush(5)
    assert done == [("a", 999), ("b", 999)]
    display.leave()
    settled(lambda: not names())


def test_it_draws_ten_times_a_second_at_most():
    display, drawn = DisplayThread(), []
    display.enter()
    until = time.monotonic() + 6.5 * PERIOD
    while time.monotonic() < until:
        display.post("a", lambda: drawn.append(threading.get_ident()))
        time.sleep(0.001)
    assert 2 <= len(drawn) <= 8
    assert len(set(drawn)) == 1
    display.leave()
    settled(lambda: not names())


def test_a_failing_wish_harms_no_other(caplog):
    display, done = DisplayThread(), []
    display.enter()
    display.post("a", lambda: 1 / 0)
    display.post("b", lambda: done.append(1))
    assert display.flush(5)
    assert done == [1]
    assert "could not be drawn" in caplog.text
    display.leave()
    settled(lambda: not names())


def test_a_wish_after_the_last_view_is_still_carried_out():
    display, done = DisplayThread(), []
    display.post("a", lambda: done.append(1))
    assert display.flush(5)
    settled(lambda: not names())
    display.post("a", lambda: done.append(2))
    settled(lambda: done == [1, 2] and not names())


def test_a_flush_waits_no_longer_than_it_may():
    display = DisplayThread()
    release = threading.Event()
    display.post("a", release.wait)
    assert not display.flush(0.05)
    release.set()
    assert display.flush(5)
    settled(lambda: not names())


def test_actions_are_carried_out_one_after_the_other(caplog):
    worker, done = Worker(), []
    worker.post(lambda: (time.sleep(0.05), done.append(1)))
    worker.post(lambda: 1 / 0)
    worker.post(lambda: done.append(2))
    settled(lambda: done == [1, 2] and not names())
    assert "could not be carried out" in caplog.text
    worker.post(lambda: done.append(3))
    settled(lambda: done == [1, 2, 3] and not names())


def test_a_clock_moves_while_nothing_else_does(monkeypatch):
    monkeypatch.setattr("pi_workflows_nb.notebook.display_thread.TICK", 0.05)
    display, ticks = DisplayThread(), []
    display.enter()
    display.tick("a", lambda: ticks.append(1))
    display.post("b", lambda: None)
    settled(lambda: len(ticks) >= 3)
    display.tick("a", None)
    display.flush(5)
    so_far = len(ticks)
    time.sleep(3 * PERIOD)
    assert len(ticks) <= so_far + 1
    display.leave()
    settled(lambda: not names())
