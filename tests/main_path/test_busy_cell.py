"""Runs go on beside a cell that computes, and the kernel is as it was afterwards."""

from __future__ import annotations

import ctypes
import sys
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook import starting
from tests.hostile.surroundings import until

FIVE = range(5)


def endless(stop):
    """Steps until a file is there; the number of them is the output."""
    wf = pw.Workflow("endless", start_at="add", max_steps=1_000_000)

    @wf.compute
    def add(ctx):
        number = ctx.outputs.get("add", {"number": 0})["number"] + 1
        return {"number": number, "route": "done" if stop.exists() else "again"}

    @wf.compute
    def done(ctx):
        return ctx.outputs["add"]["number"]

    wf.edge("add", switch="$.route", cases={"again": "add", "done": "done"})
    return wf


def spin(seconds):
    """Pure Python, as a cell may be busy with."""
    spun, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20_000):
            spun += 1


@pytest.mark.timeout(300)
def test_five_runs_go_on_beside_a_cell_that_spins(tmp_path, placement, long_form, rows_of):
    path, stop = tmp_path / "s.sqlite", tmp_path / "stop"
    before = sys.getswitchinterval()
    server = pw.start(database=path, project=tmp_path, server=placement, max_runners=5)

    def rows(query):
        return rows_of(path, query)

    runs = [server.run(endless(stop)) for _ in FIVE]
    until(lambda: rows("SELECT count(DISTINCT run_id) FROM run_steps") == [(5,)])
    begun = dict(rows("SELECT run_id, count(*) FROM run_steps GROUP BY 1"))
    spin(60 if long_form else 2)
    spun = dict(rows("SELECT run_id, count(*) FROM run_steps GROUP BY 1"))
    assert all(spun[run.id] > begun[run.id] for run in runs), "a run stood still"
    stop.touch()
    steps = [run.wait(timeout=60).output + 1 for run in runs]
    assert [count for (count,) in rows("SELECT count(*) FROM run_steps GROUP BY run_id ORDER BY 1")] == sorted(steps)
    assert rows("SELECT max(generation) FROM run_workers") == [(1,)], "a claim was lost"
    server.stop()
    assert sys.getswitchinterval() == before


@pytest.mark.timeout(300)
def test_a_cell_that_holds_the_interpreter_for_longer_than_a_lease_costs_one_generation(
    tmp_path, placement, monkeypatch, long_form, rows_of
):
    if not long_form:
        connect = starting.connect
        monkeypatch.setattr(starting, "connect", lambda *given: connect(*given[:-1], {**given[-1], "runLeaseMs": 1500}))
    path, stop = tmp_path / "s.sqlite", tmp_path / "stop"
    with pw.start(database=path, project=tmp_path, server=placement, max_runners=5) as server:
        runs = [server.run(endless(stop)) for _ in FIVE]
        until(lambda: rows_of(path, "SELECT count(DISTINCT run_id) FROM run_steps") == [(5,)])
        ctypes.PyDLL(None).sleep(35 if long_form else 3)  # C code that does not let go of the interpreter
        stop.touch()
        steps = [run.wait(timeout=60).output + 1 for run in runs]
    assert [count for (count,) in rows_of(path, "SELECT count(*) FROM run_steps GROUP BY run_id ORDER BY 1")] == sorted(
        steps
    )
    generations = rows_of(path, "SELECT run_id, max(generation) FROM run_workers GROUP BY 1")
    # The server in the kernel could renew nothing; the one beside it has noticed nothing.
    assert [generation for _, generation in generations] == [2 if placement == "thread" else 1] * 5
    assert rows_of(path, "SELECT count(*) FROM run_workers WHERE status IN ('starting', 'ready', 'running')") == [(0,)]
