"""Nodes that do not stop, whatever they are told: they are given up, and their processes ended."""

from __future__ import annotations

import time

import pytest

from tests.hostile.nodes import hostile
from tests.hostile.surroundings import until

STUBBORN = {
    "in C": "import ctypes\nwhile True:\n    ctypes.CDLL(None).pause()",
    "in C with the interpreter's lock": "import ctypes\nwhile True:\n    ctypes.PyDLL(None).pause()",
    "a regular expression": "import re\nreturn re.match(r'(x+x+)+y', 'x' * 60)",
    "spinning": "while True:\n    pass",
    "swallowing what is raised": "import time\nwhile True:\n    try: time.sleep(0.01)\n    except: pass",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nsignal.pause()",
    "in a child": "import subprocess\nsubprocess.run(['sleep', '600'])",
}
HOLDS_THE_LOCK = ("in C with the interpreter's lock", "a regular expression", "stopped")
ASYNC = """
import asyncio
while True:
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        pass
"""


@pytest.mark.parametrize("how", STUBBORN)
def test_at_its_deadline_a_node_is_given_up_and_its_run_goes_on_elsewhere(host, how):
    began = time.monotonic()
    run = host.ended(hostile(STUBBORN[how], kind="compute(timeout=0.3)"))
    assert time.monotonic() - began < 8
    assert run.output == ["timed_out", None]
    status, error = host.step(run)
    assert status == "timed_out"
    if how in HOLDS_THE_LOCK:
        assert error == "node bad ran past its deadline and could not be stopped; its process was ended"
        assert host.runners(run) == ["timedOut", "exited"]
    else:
        assert error.startswith("TimeoutError: node 'bad' did not end within its 0.3 s; its code did not stop")
        assert host.runners(run) == ["exited", "exited"]


def test_async_code_that_swallows_its_cancellation_is_given_up(host):
    run = host.ended(hostile(ASYNC, kind="compute(timeout=0.3)", define="async def"))
    assert run.output == ["timed_out", None]
    assert "did not stop and was left behind" in host.step(run)[1]


def marked(how, mark):
    """A node that leaves a mark and does not stop; once the mark is there before it, it returns."""
    there = f"import os\nif os.path.exists({str(mark)!r}):\n    return 'returned'\nopen({str(mark)!r}, 'w').close()\n"
    return hostile(there + STUBBORN[how], kind="compute(timeout=None)")


@pytest.mark.parametrize("how", STUBBORN)
def test_a_cancelled_run_ends_at_once_and_its_process_soon(host, tmp_path, how):
    run = host.run(marked(how, tmp_path / "mark"))
    until((tmp_path / "mark").exists)
    began = time.monotonic()
    run.cancel()
    assert run.status == "cancelled"
    assert time.monotonic() - began < 1.5
    host.check_gone(run)
    assert time.monotonic() - began < 6
    assert host.runners(run) == ["cancelled"]


@pytest.mark.parametrize("how", HOLDS_THE_LOCK)
def test_a_paused_run_lets_go_of_its_process_and_goes_on_when_resumed(host, tmp_path, how):
    run = host.run(marked(how, tmp_path / "mark"))
    until((tmp_path / "mark").exists)
    run.pause()
    assert run.status == "paused"
    host.check_gone(run)
    run.resume().wait(timeout=30)
    assert run.output == ["ok", "returned"]
    assert host.runners(run) == ["cancelled", "exited"]
    assert host.rows("SELECT consecutive_errors FROM run_queue WHERE run_id = ?", run.id)[0][0] == 0
