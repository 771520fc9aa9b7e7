"""A runner that is killed before its first word is replaced at once, not after the time it had for that word."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil

import pi_workflows_nb as pw


def test_a_runner_killed_before_it_is_ready_is_replaced_at_once(state_file, tmp_path):
    wf = pw.Workflow("one", start_at="a")
    wf.compute(lambda ctx: time.sleep(0.1) or os.getpid(), name="a")
    killed = []

    def hunt(nursery):
        give_up = time.monotonic() + 30
        while not killed and time.monotonic() < give_up:
            for runner in nursery.children():
                os.kill(runner.pid, signal.SIGKILL)
                killed.append(runner.pid)

    with pw.start(database=state_file, project=tmp_path) as server:
        (nursery,) = psutil.Process().children()
        hunter = threading.Thread(target=hunt, args=(nursery,))
        hunter.start()
        run = server.run(wf).wait(timeout=10)
        hunter.join()
        assert run.output not in killed
        first, _ = server.runners().status
        assert first == "crashed"
