"""A machine that was paused: its nodes keep the time they have."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil

import pi_workflows_nb as pw
from tests.hostile.surroundings import until


def sleeps(seconds, timeout):
    wf = pw.Workflow("sleeps", start_at="sleep")

    @wf.compute(timeout=timeout)
    def sleep(ctx):
        import time

        for _ in range(ctx.input):
            time.sleep(0.1)
        return "slept"

    return wf, seconds * 10


def test_a_pause_that_is_longer_than_what_is_left_of_a_deadline_costs_nothing(tmp_path):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server="process") as server:
        wf, rounds = sleeps(3, timeout=4)
        run = server.run(wf, rounds)
        until(lambda: len(server.attempts()) == 1)
        time.sleep(0.5)
        first = psutil.Process(server._connection.server_pid)
        family = [first, *first.children(recursive=True)]
        for process in family:
            process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        assert run.wait(timeout=40, until="end").output == "slept"
        assert server.runners().generation.tolist() == [1]
        assert len(server.verify()) == 0
