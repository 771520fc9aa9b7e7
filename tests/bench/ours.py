"""This package in the same shapes as the neighbours.

    python -m tests.bench.ours DB steps|effects|eight|runs|warm|cold|bytes N
    python -m tests.bench.ours DB idle|beside|cell|alone thread|process N

`steps`   one run of N compute steps, in steps a second
`effects` one run of N action steps, each an effect that is reserved and settled, in effects a second
`eight`   eight runs of N compute steps at once, in steps a second of all
`runs`    N runs of five steps, eight at a time, from the first submission to the last end, in runs a second
`warm`    the median of N times from the call of `server.run` to the first line of the first node, in seconds
`cold`    the moment at which the first run's output was there, on the clock that all processes share
`bytes`   what one of N compute steps costs in the file, in bytes
`idle`    five runs for N tenths of a second, in steps a second of all
`beside`  the same beside a cell that spins in pure Python
`cell`    the turns a second of that cell beside them
`alone`   the turns a second of that cell beside a server that has nothing to do
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pi_workflows_nb as pw


def counting(steps: int, *, effects: bool = False) -> pw.Workflow:
    """A workflow that takes `steps` compute steps to count to `steps`, or as many effects and one step."""
    workflow = pw.Workflow("count", start_at="add", max_steps=steps + 1)
    kind = workflow.action(effect=pw.idempotent_effect("count")) if effects else workflow.compute

    @kind
    def add(ctx):
        value = ctx.outputs.get("add", {"value": 0})["value"] + 1
        return {"value": value, "route": "again" if value < ctx.input["steps"] - 1 else "last"}

    @workflow.compute
    def last(ctx):
        return ctx.outputs["add"]["value"] + 1

    workflow.edge("add", switch="$.route", cases={"again": "add", "last": "last"})
    return workflow


def chain() -> pw.Workflow:
    """Five compute steps in a row."""
    workflow = pw.Workflow("five", start_at="step_1")
    for number in range(1, 6):
        workflow.compute(lambda ctx, number=number: {"value": number}, name=f"step_{number}")
        if number > 1:
            workflow.edge(f"step_{number - 1}", f"step_{number}")
    return workflow


def endless(stop: Path) -> pw.Workflow:
    """Steps until a file is there."""
    workflow = pw.Workflow("endless", start_at="add", max_steps=10_000_000)

    @workflow.compute
    def add(ctx):
        return {"route": "last" if stop.exists() else "again"}

    @workflow.compute
    def last(ctx):
        return "stopped"

    workflow.edge("add", switch="$.route", cases={"again": "add", "last": "last"})
    return workflow


def spin(seconds: float) -> float:
    """A busy cell; gives its turns a second."""
    turns, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(1000):
            turns += 1
    return turns / (time.perf_counter() - begun)


def beside(server, folder: Path, mode: str, seconds: float) -> dict[str, float]:
    """Five runs and a cell."""
    stop = folder / "stop"
    runs = [server.run(endless(stop)) for _ in range(0 if mode == "alone" else 5)]

    def steps() -> int:
        return int(server.sql("SELECT count(*) n FROM run_steps").n[0])

    while steps() < 50 * len(runs):
        time.sleep(0.05)
    before, begun = steps(), time.perf_counter()
    turns = 0.0
    if mode == "idle":
        time.sleep(seconds)
    else:
        turns = spin(seconds)
    passed = time.perf_counter() - begun
    done = steps() - before
    stop.touch()
    assert [finish(run) for run in runs] == ["stopped"] * len(runs)
    return {"value": turns if mode in ("cell", "alone") else done / passed}


def clock() -> pw.Workflow:
    """One step that says when it ran."""
    workflow = pw.Workflow("clock", start_at="look")

    @workflow.compute
    def look(ctx):
        import time

        return time.monotonic()

    return workflow


def finish(run) -> object:
    with contextlib.redirect_stdout(io.StringIO()):
        run.wait()
    return run.output


def measure(server, database: Path, mode: str, number: int) -> dict[str, float]:
    assert finish(server.run(clock())) is not None
    if mode == "cold":
        return {"finished": time.monotonic()}
    if mode == "warm":
        workflow = clock()
        waits = []
        for _ in range(number):
            called = time.monotonic()
            waits.append(finish(server.run(workflow)) - called)
        return {"value": statistics.median(waits)}
    if mode == "runs":
        workflow = chain()
        submitted = time.time()
        runs = [server.run(workflow) for _ in range(number)]
        assert all(finish(run) == {"value": 5} for run in reversed(runs))
        # When the last one ended stands in the file: looking at each run takes time of its own.
        return {"value": number / (server.runs()["finished_at"].max().timestamp() - submitted)}
    started = time.perf_counter()
    workflow = counting(number, effects=mode == "effects")
    if mode == "bytes":
        before = size(database)
        assert finish(server.run(workflow, input={"steps": number})) == number
        return {"value": (size(database) - before) / number}
    many = 8 if mode == "eight" else 1
    runs = [server.run(workflow, input={"steps": number}) for _ in range(many)]
    assert all(finish(run) == number for run in runs)
    return {"value": many * number / (time.perf_counter() - started)}


def size(database: Path) -> int:
    """Bytes of all pages, wherever they lie at this moment."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages = connection.execute("pragma page_count").fetchone()[0]
        return pages * connection.execute("pragma page_size").fetchone()[0]


def main(path: str, mode: str, number: int, placement: Any = "thread") -> None:
    database = Path(path)
    server = pw.start(database=database, project=database.parent, max_runners=8, server=placement)
    try:
        if mode in ("idle", "beside", "cell", "alone"):
            result = beside(server, database.parent, mode, number / 10)
        else:
            result = measure(server, database, mode, number)
    finally:
        server.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[-1]), *sys.argv[3:-1])
