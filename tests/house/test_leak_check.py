"""The check that runs after each test sees what it is there to see."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib import import_module

from pi_workflows_nb.state.database import Database
from tests.leaks import HOLD_MUCH, Snapshot, give_back, kept_alive, living

SLEEP = "import time; time.sleep(60)"
DETACHED = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True, stdout=subprocess.DEVNULL)
"""


def test_nothing_new_is_no_leak():
    assert Snapshot.take().left(patience=0) == []


def test_a_child_is_seen_and_ended():
    before = Snapshot.take()
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    assert any(f"process {child.pid}" in line for line in before.left(patience=0))
    before.end_processes()
    assert child.wait(5) is not None
    assert before.left(patience=0) == []


def test_a_grandchild_that_lost_its_parent_is_seen():
    before = Snapshot.take()
    subprocess.run([sys.executable, "-c", DETACHED], check=True)
    assert any(SLEEP in line for line in before.left(patience=0))
    before.end_processes()
    assert before.left(patience=5) == []


def test_a_child_that_nobody_waited_for_is_seen():
    before = Snapshot.take()
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert [line for line in before.left(patience=0) if "nobody waited" in line]
    os.waitpid(child, 0)


def test_a_thread_is_seen_until_it_ends():
    before = Snapshot.take()
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="lingering")
    thread.start()
    assert before.left(patience=0) == ["thread lingering"]
    end.set()
    thread.join()
    assert before.left(patience=0) == []


def test_a_descriptor_is_seen_until_it_is_closed():
    before = Snapshot.take()
    reading, writing = os.pipe()
    assert len(before.left(patience=0)) == 2
    os.close(reading)
    os.close(writing)
    assert before.left(patience=0) == []


def test_memory_is_seen_until_it_is_given_back():
    give_back()  # or what earlier tests have left would be used again
    before = Snapshot.take()
    kept = [bytearray(os.urandom(1 << 20)) for _ in range(128)]
    (line,) = before.left(patience=0)
    assert line.startswith("memory: ")
    del kept[:]
    assert before.left(patience=0) == []


def test_memory_that_a_cycle_holds_is_no_leak():
    before = Snapshot.take()
    cycle: list[object] = [os.urandom(128 << 20)]
    cycle.append(cycle)
    del cycle
    assert before.left(patience=0) == []


def test_an_object_that_holds_much_is_seen_until_it_is_let_go(tmp_path):
    before = living()
    kept: list[object] = [Database.open(tmp_path / "s.sqlite", 1)]
    kept[0].close()
    kept.append(kept)  # nothing but the collector finds it
    assert kept_alive(before, patience=0) == ["1 of Database"]
    del kept
    assert kept_alive(before, patience=0) == []


def test_all_classes_that_hold_much_are_there():
    assert all(hasattr(import_module(module), name) for module, names in HOLD_MUCH.items() for name in names)
