"""Nodes that end their process: three times in a row park the run, with a reason for a person; nobody else is hurt."""

from __future__ import annotations

import pytest

from tests.hostile.nodes import hostile, printed
from tests.hostile.surroundings import until

ENDS = {
    "os._exit(0)": ("import os\nos._exit(0)", "its process ended with exit code 0"),
    "os._exit(3)": ("import os\nos._exit(3)", "its process ended with exit code 3"),
    "a fault": ("import ctypes\nctypes.string_at(0)", "SIGSEGV (a fault in native code"),
    "abort": ("import os\nos.abort()", "SIGABRT (native code gave up)"),
    "SIGKILL": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL (killed from outside"),
    "SIGTERM": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nwhile True: pass", "exit code 143"),
    "interrupt": ("import _thread\n_thread.interrupt_main()\nwhile True: pass", "its process ended with exit code 1"),
    "its group": ("import os, signal\nos.killpg(0, signal.SIGKILL)", "SIGKILL"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef deeper(_):\n    return list(map(deeper, [1]))\ndeeper(1)",
        "SIGSEGV (a fault in native code, or recursion that is too deep for it)",
    ),
    "its channel closed": ("import os\nos.close(1000)", "its process ended with exit code 74"),
}


@pytest.mark.parametrize("how", ENDS)
def test_three_crashes_in_a_row_park_a_run_with_a_reason(host, how):
    body, told = ENDS[how]
    run = host.ended(hostile(body))
    view = host.view(run)
    assert run.status == "queued"
    assert view["controls"] == ["cancel", "resume"]
    assert view["reason"].startswith("the runner ended 3 times without finishing a node; the last time ")
    assert told in view["reason"]
    assert "node bad" in view["reason"]
    assert view["reason"].endswith("run.resume() tries again")
    assert host.runners(run) == ["crashed"] * 3
    assert host.rows("SELECT step_index FROM run_steps WHERE run_id = ?", run.id) == [(0,)]
    run.cancel()
    assert run.status == "cancelled"


def test_a_fault_in_native_code_shows_the_line_of_the_cell(host):
    run = host.ended(hostile("print('here', flush=True)\nimport ctypes\nctypes.string_at(0)"))
    text = printed(run)
    assert "here" in text
    assert "Segmentation fault" in text
    assert "ipykernel_1" in text
    assert "in bad" in text
    run.cancel()


def test_a_crash_that_passes_costs_nothing(host, tmp_path):
    tries = tmp_path / "tries"
    run = host.ended(
        hostile(f"""
        import os
        with open({str(tries)!r}, "a") as file:
            file.write("x")
        if os.path.getsize({str(tries)!r}) < 3:
            os._exit(1)
        return "third"
        """)
    )
    assert run.output == ["ok", "third"]
    assert host.runners(run) == ["crashed", "crashed", "exited"]
    assert host.rows("SELECT consecutive_errors FROM run_queue WHERE run_id = ?", run.id) == [(0,)]


def test_a_process_that_stops_itself_until_its_claim_is_gone_counts_as_a_crash(short_lease):
    run = short_lease.run(hostile("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nsignal.pause()"))
    until(lambda: short_lease.view(run)["controls"] == ["cancel", "resume"], 30)
    assert "stopped by a signal while node bad ran, for longer than its claim lasts" in short_lease.view(run)["reason"]
    # A stop in which the server was held up, too, as on a busy machine, is excused, and one more is needed.
    assert short_lease.rows("SELECT consecutive_errors FROM run_queue WHERE run_id = ?", run.id) == [(3,)]
    assert set(short_lease.runners(run)) == {"claimLost"}
    short_lease.check_gone(run)


def test_a_node_that_writes_into_its_channel_is_stopped_with_an_error_of_bounded_length(host):
    run = host.ended(hostile("import os, time\nos.write(1000, b'x' * 100_000 + b'\\n')\ntime.sleep(60)"))
    assert "the last time protocol: " in host.view(run)["reason"]
    assert len(host.view(run)["reason"]) < 1000
    assert host.runners(run) == ["crashed"] * 3
    run.cancel()


def test_a_node_that_removes_what_the_interpreter_is_made_of_parks_its_run(host):
    run = host.ended(hostile("import builtins\nfor name in list(vars(builtins)):\n    delattr(builtins, name)"))
    assert host.view(run)["controls"] == ["cancel", "resume"]
    assert "without finishing a node" in host.view(run)["reason"]
    run.cancel()
