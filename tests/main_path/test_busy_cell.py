"""Runs go on beside a cell that computes, and the kernel is as it was afterwards."""

from __future__ import annotations

import sys

import pi_workflows_nb as pw


def test_runs_go_on_beside_a_cell_that_spins(server, rows):
    wf = pw.Workflow("counts", start_at="add", max_steps=500)

    @wf.compute
    def add(ctx):
        number = ctx.outputs.get("add", {"number": 0})["number"] + 1
        return {"number": number, "route": "again" if number < 200 else "done"}

    @wf.compute
    def done(ctx):
        return ctx.outputs["add"]["number"]

    wf.edge("add", switch="$.route", cases={"again": "add", "done": "done"})
    before = sys.getswitchinterval()
    runs = [server.run(wf) for _ in range(3)]
    spun = 0
    while rows("SELECT count(*) FROM runs WHERE status <> 'completed'") != [(0,)]:
        for _ in range(200_000):
            spun += 1
    assert [run.wait(timeout=30).output for run in runs] == [200] * 3
    assert rows("SELECT max(generation) FROM run_workers") == [(1,)]
    server.stop()
    assert sys.getswitchinterval() == before
