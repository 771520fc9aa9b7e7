"""Two kernels and a command line on one server: everybody sees the same, may do the same, and outlives the owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.kernels import CellError, Kernel

ATTACH = """
import pathlib, time
import pi_workflows_nb as pw
server = pw.start(database="s.sqlite", server=PLACEMENT)
print(server.placement)
"""
RUN = """
wf = pw.Workflow("job", start_at="one", max_steps=1000)

@wf.compute
def one(ctx):
    return 1

@wf.compute
def slow(ctx):
    while not pathlib.Path("gate").exists():
        time.sleep(0.01)
    return "done"

wf.edge("one", "slow")
run = server.run(wf, {"n": 1}, key="job")
print(run.id)
"""
PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


@contextmanager
def kernels(folder):
    made = []
    try:
        made.extend(Kernel(folder) for _ in range(2))
        yield made
    finally:
        for one in made:
            one.close()


def command(folder, *words):
    """What a command line prints, as JSON lines."""
    result = subprocess.run(
        [*PROGRAM, *words, "--database", "s.sqlite"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PI_WORKFLOWS_HOME": str(folder / "h")},
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def until(true, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.02)
    return found


def attach(kernel, placement):
    return kernel.run(ATTACH.replace("PLACEMENT", repr(placement))).split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_the_same_run_is_seen_and_controlled_from_everywhere_and_outlives_the_owner(tmp_path, placement):
    with kernels(tmp_path) as (first, second):
        assert attach(first, placement) == placement
        assert attach(second, placement) == ("kernel" if placement == "thread" else "process")
        run_id = first.run(RUN).split()[-1]
        second.run(f"run = server.get_run({run_id!r})")
        for kernel in (first, second):
            until(lambda kernel=kernel: kernel.run("print(run.status, len(run.steps()))") == "running 1\n")
        (row,) = command(tmp_path, "runs")
        (view,) = command(tmp_path, "view", run_id, "--once", "--json")
        assert (row["runId"], row["status"], view["status"]) == (run_id, "running", "running")
        assert row["controls"] == ["cancel", "pause"]

        # Whoever acts, the others see it.
        second.run("run.pause()")
        assert first.run("print(run.status)") == "paused\n"
        assert command(tmp_path, "runs")[0]["status"] == "paused"
        first.run("run.resume()")
        until(lambda: second.run("print(run.status)") == "running\n")

        # The second kernel waits and follows while the owner is killed.
        second.run("seen = []; end = server._connection.subscribe(run.id, seen.append)")
        waiting = second.begin("run.wait(timeout=60); print(run.output)")
        pid = json.loads(first.run("import json; print(json.dumps(server.status()['pid']))"))
        died = time.monotonic()
        if placement == "thread":
            first.kill()
        else:
            os.kill(pid, 9)
        until(lambda: command(tmp_path, "runs")[0]["status"] == "running")
        print(f"\n{placement}: seen running again by a command line {time.monotonic() - died:.2f} s after the kill")
        (tmp_path / "gate").touch()
        assert second.end(waiting).endswith("done\n")
        assert second.run("print(server.alive, run.status, seen[-1]['status'])") == "True completed completed\n"
        status = json.loads(second.run("import json; print(json.dumps(server.status()))"))
        assert status["epoch"] == 2
        assert status["pid"] != pid
        if placement == "thread":
            assert second.run("print(server.placement)") == "thread\n"
        assert second.run("print(len(server.verify()))") == "0\n"
        second.run("end(); server.stop()")


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_the_other_kernel_goes_on_within_a_moment(tmp_path, placement):
    with kernels(tmp_path) as (first, second):
        attach(first, placement)
        attach(second, placement)
        pid = int(first.run("print(server.status()['pid'])"))
        # A thread asks all the while: the longest time without an answer is how long nobody served.
        second.run(
            "import threading\n"
            "longest, over = 0.0, threading.Event()\n"
            "def ask():\n"
            "    global longest\n"
            "    while not over.is_set():\n"
            "        asked = time.monotonic()\n"
            "        server.status()\n"
            "        longest = max(longest, time.monotonic() - asked)\n"
            "asking = threading.Thread(target=ask); asking.start()"
        )
        first.kill() if placement == "thread" else os.kill(pid, 9)
        until(lambda: second.run("print(server.status()['epoch'])") == "2\n")
        longest = float(second.run("over.set(); asking.join(); print(longest)"))
        print(f"\n{placement}: nobody served for {longest:.2f} s")
        assert longest < 20
        second.run("server.stop()")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "shutdown"])
def test_a_stopped_server_stays_so_and_a_closed_notebook_hands_over(tmp_path, how):
    with kernels(tmp_path) as (first, second):
        attach(first, "thread")
        attach(second, "thread")
        if how == "stop":
            first.run("server.stop()")
            until(lambda: second.run("print(server.alive)") == "False\n")
            with pytest.raises(CellError) as told:
                second.run("server.status()")
            assert told.value.name == "ServerStoppedError"
            assert attach(second, "thread") == "thread", "whoever wants one starts one"
        else:
            first.restart()
            until(lambda: second.run("print(server.placement)") == "thread\n")
            assert attach(first, "thread") == "kernel"
        assert second.run("print(server.status()['epoch'])") == "2\n"
        second.run("server.stop()")
