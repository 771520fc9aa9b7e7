"""Runs see the environment of their kernel; what a run has seen is let go when it ends."""

from __future__ import annotations

import gc
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.server.environments import Environments


@pytest.fixture
def server(tmp_path):
    served = pw.start(database=tmp_path / "s.sqlite", project=tmp_path)
    yield served
    served.stop()


def kept(count):
    """Wait until the servers of this process hold the variables of so many runs; gives what each holds."""
    gc.collect()
    holders = [one for one in gc.get_objects() if isinstance(one, Environments)]
    give_up = time.monotonic() + 5
    while [len(one) for one in holders] != [count] and time.monotonic() < give_up:
        time.sleep(0.01)
    return [len(one) for one in holders]


def seeing(name):
    wf = pw.Workflow("seeing", start_at="look")

    @wf.compute
    def look(ctx):
        import os

        return os.environ.get(name)

    return wf


def test_a_run_sees_the_variables_of_its_kernel_and_leaves_none(server, monkeypatch):
    monkeypatch.setenv("COLOUR", "green")
    assert server.run(seeing("COLOUR")).wait().output == "green"
    assert kept(0) == [0]


def test_a_run_that_waits_keeps_what_its_continuation_will_see(server, monkeypatch):
    wf = seeing("COLOUR")
    wf.start_at = "ask"
    wf.checkpoint(lambda ctx: None, name="ask")
    wf.edge("ask", "look")
    monkeypatch.setenv("COLOUR", "red")
    run = server.run(wf).wait()
    assert kept(1) == [1]
    monkeypatch.setenv("COLOUR", "blue")
    assert run.answer(None).wait().output == "red"
    assert kept(0) == [0]


def test_a_restart_sees_the_variables_of_its_own_moment(server, monkeypatch):
    wf = pw.Workflow("restarted", start_at="look")

    @wf.compute
    def look(ctx):
        import os

        if os.environ["COLOUR"] == "red":
            raise ValueError("red")
        return os.environ["COLOUR"]

    monkeypatch.setenv("COLOUR", "red")
    run = server.run(wf).wait()
    assert run.status == "failed"
    monkeypatch.setenv("COLOUR", "blue")
    assert run.restart().wait().output == "blue"
    assert kept(0) == [0]


def test_equal_variables_are_held_once():
    environments = Environments()
    for number in range(3):
        environments.keep(f"run {number}", {"A": "1"})
    environments.keep("other", {"A": "2"})
    assert environments.of("run 0") is environments.of("run 2")
    assert environments.of("other") == {"A": "2"}
    environments.keep("run 0", None)
    assert environments.of("run 0") == {"A": "1"}
    assert environments.of("nobody") is None
