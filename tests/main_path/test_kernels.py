"""The main job in a real kernel: interrupts, restarts, death, and going on."""

from __future__ import annotations

import time

import pytest

from tests.kernels import CellError, kernel

DEFINE = """
import time, pathlib
import pi_workflows_nb as pw
wf = pw.Workflow("job", start_at="one", max_steps=100)
ledger = pathlib.Path("ledger")

@wf.action(effect=pw.idempotent_effect("ledger"))
def one(ctx):
    with ledger.open("a") as file:
        file.write("one\\n")

@wf.compute
def slow(ctx):
    while not pathlib.Path("gate").exists():
        time.sleep(0.01)
    return "done"

wf.edge("one", "slow")
server = pw.start(database="s.sqlite", server=PLACEMENT)
run = server.run(wf, {"n": 1}, key="job")
"""


@pytest.fixture
def define(placement):
    return DEFINE.replace("PLACEMENT", repr(placement))


def test_an_interrupt_ends_the_wait_and_leaves_the_run_going(tmp_path, define):
    with kernel(tmp_path) as jupyter:
        jupyter.run(define)
        waiting = jupyter.begin("print('waiting', flush=True); run.wait()")
        time.sleep(1.0)
        pressed = time.monotonic()
        jupyter.interrupt()
        with pytest.raises(CellError) as told:
            jupyter.end(waiting)
        took = time.monotonic() - pressed
        assert told.value.name == "KeyboardInterrupt"
        assert took < 5, "an interrupt must get through"
        print(f"interrupt to idle: {took:.3f} s")
        assert jupyter.run("print(run.status)") == "running\n"
        (tmp_path / "gate").touch()
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        jupyter.run("server.stop()")


def test_run_all_after_a_restart_starts_nothing_twice(tmp_path, define):
    with kernel(tmp_path) as jupyter:
        jupyter.run(define)
        _until((tmp_path / "ledger").exists)
        first = jupyter.run("print(run.id)")
        jupyter.restart()
        (tmp_path / "gate").touch()
        jupyter.run(define)
        assert jupyter.run("print(run.id)") == first
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        assert jupyter.run("print(len(server.runs()), len(server.steps()))") == "1 2\n"
        assert (tmp_path / "ledger").read_text() == "one\n"
        jupyter.run("server.stop()")


def test_a_killed_kernel_loses_nothing(tmp_path, define):
    with kernel(tmp_path) as jupyter:
        jupyter.run(define)
        _until((tmp_path / "ledger").exists)
        _until(lambda: jupyter.run("print(len(server.steps()))") == "1\n")
        jupyter.kill()
        (tmp_path / "gate").touch()
        jupyter.restart_after_kill()
        jupyter.run(define)
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        assert jupyter.run("print(len(server.runs()), len(server.steps()), len(server.verify()))") == "1 2 0\n"
        assert (tmp_path / "ledger").read_text() == "one\n"
        jupyter.run("server.stop()")


def test_a_run_can_be_awaited_while_the_kernel_does_other_things(tmp_path, define):
    with kernel(tmp_path) as jupyter:
        jupyter.run(define)
        jupyter.run(
            "import asyncio\n"
            "async def meanwhile():\n"
            "    for n in range(5):\n"
            "        await asyncio.sleep(0.01)\n"
            "    pathlib.Path('gate').touch()\n"
            "task = asyncio.ensure_future(meanwhile())"
        )
        assert jupyter.run("await run\nprint(run.output)").endswith("done\n")
        jupyter.run("server.stop()")


def _until(true, seconds=20.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.01)
