"""`pi-workflows-nb demo`: the main job in the terminal, with nothing but the installed package.

Two runs with the real parts. The first is the workflow of the first notebook, taken from the notebook's own cells. The
second loses its process to SIGKILL and goes on. Both results are checked against a count made here by other means.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from rich.console import Console
from rich.markup import escape

import pi_workflows_nb as pw

from . import carried, survivor, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

# The demo is written as a person would write it: it knows what `pw` gives, and not the rooms behind.
Run: TypeAlias = Any
Server: TypeAlias = Any

ROWS: Final = 10
MOST_ROWS: Final = 40
SECONDS_EACH: Final = 0.4
KILL_AFTER: Final = 3
PATIENCE: Final = 60.0
LOOK_SECONDS: Final = 0.05


def run_demo(*, database: Path | None, ask: bool) -> None:
    """Show everything, on the standard output. Takes where to keep the state file (None for nowhere) and whether a
    person is there to be asked. `RunFailed` or another `PiWorkflowsError` when something does not come out right.
    """
    console = Console(highlight=False)
    with _served(database) as server:
        _quickstart(console, server, ask=ask)
        _crash(console, server)
    console.print()
    if database is not None:
        console.print(f"Everything stands in {escape(str(database))}. In Python, to look at it again:", soft_wrap=True)
        console.print(f"  pw.open_state({str(database)!r}).runs(project='*')", markup=False, soft_wrap=True)
    console.print("[bold]The same in JupyterLab, to play with:[/]")
    console.print("  pip install '.\\[lab]'")
    console.print("  pi-workflows-nb lab")


@contextmanager
def _served(database: Path | None) -> Iterator[Server]:
    if database is not None:
        server = pw.start(database=database)
        try:
            yield server
        finally:
            if server.placement == "thread":
                server.stop()  # another placement serves others too
        return
    with tempfile.TemporaryDirectory(prefix="pi-workflows-nb-demo-") as folder:
        # Nothing of a demonstration shall stay, neither in the default state file nor beside it.
        os.environ["PI_WORKFLOWS_HOME"] = folder
        with pw.start() as server:
            yield server


# -- the first run ----------------------------------------------------------------------------------------------------


def _quickstart(console: Console, server: Server, *, ask: bool) -> None:
    names = carried.definitions(carried.folder() / carried.QUICKSTART)
    question = names["question"]
    of_git = question["source"] == "git"
    console.rule("[bold]1 · A run", align="left")
    console.print(
        "Which files of this repository are changed most often?"
        if of_git
        else "No git history here, so: which packages of Python's standard library have the most modules?"
    )
    run = server.run(names["wf"], input=question, agent=names["agent"])
    told = _follow(console, run, set())
    asked = run.output_of("review")
    console.print(f"  [bold yellow]?[/] [bold]review[/] {escape(asked['headline'])} {escape(asked['question'])}")
    rows = click.prompt("   ", default=ROWS, type=click.IntRange(1, MOST_ROWS)) if ask else ROWS
    if not ask:
        console.print(f"    {rows}   [dim](run.answer({rows}), given by the demo)[/]")
    run.answer(rows)
    _follow(console, run, told)
    report = run.output
    _expect(
        all(names["counted_again"](row["name"]) == row["count"] for row in report["rows"]),
        "the first run and a count by other means differ",
    )
    console.print()
    console.print(
        tables.of_rows(
            report["rows"],
            {"name": "file" if of_git else "package", "count": "commits" if of_git else "modules", "lines": "lines"},
        )
    )
    console.print(
        f"[green]✓[/] the same {len(report['rows'])} numbers, counted again "
        + ("by git for each file alone" if of_git else "by walking each folder")
    )

    console.print()
    console.rule("[bold]2 · What happened, as DataFrames", align="left")
    _frame(console, "server.runs()", server.runs(run=run), "workflow", "status", "steps", "mode", "created_at")
    _frame(console, "run.steps()", run.steps(), "node_id", "node_type", "outcome", "started_at", "duration")
    _frame(console, "run.effects()", run.effects(), "effect_type", "status", "attempt_count", "settled_at")
    _frame(
        console,
        "run.events().tail(6)",
        run.events().tail(6),
        "event_seq",
        "revision",
        "event_type",
        "actor_type",
        "recorded_at",
    )


def _follow(console: Console, run: Run, told: set[str]) -> set[str]:
    """Print each step when it is finished, until the run ends or waits; gives the attempts told of."""
    until = time.monotonic() + PATIENCE
    with console.status("the runner starts"):
        while True:
            status = run.status
            _tell(console, run, told)
            if status in {"completed", "waiting"}:
                return told
            _expect(
                status in {"queued", "running"} and time.monotonic() < until,
                f"the run is {status}: {run.error or run!r}",
            )
            time.sleep(LOOK_SECONDS)


def _tell(console: Console, run: Run, told: set[str]) -> None:
    steps = run.steps(payloads=True)
    for row in range(len(steps)):
        step = steps.iloc[row]
        if step["attempt_id"] in told:
            continue
        told.add(str(step["attempt_id"]))
        well = step["outcome"] == "ok"
        said = tables.words(step["output"]) if well else f"{step['outcome']}: {step['error']}"
        seen = f"[bold]{step['node_id']:<8}[/] {step['node_type']:<10} {tables.duration(step['duration']):>6}"
        mark = "[green]✓[/]" if well else "[red]✗[/]"
        console.print(f"  {mark} {seen}  {escape(said)}", no_wrap=True, overflow="ellipsis")


# -- the second run ---------------------------------------------------------------------------------------------------


def _crash(console: Console, server: Server) -> None:
    packages = list(survivor.PACKAGES)
    console.print()
    console.rule("[bold]3 · A crash", align="left")
    console.print(
        f"{len(packages)} packages, one step each. In the middle of the fourth the process of the run gets SIGKILL."
    )
    run = server.run(survivor.workflow(), input={"packages": packages, "seconds": SECONDS_EACH})
    told: set[str] = set()
    killed = _kill_in_the_middle(console, run, told)
    _follow(console, run, told)
    runners, output = run.runners(), run.output
    console.print()
    _frame(console, "run.runners()", runners, "generation", "pid", "status", "signal", "started_at", "duration")
    attempts = run.attempts(node="read")
    visits = attempts[attempts["status"] == "completed"]
    _expect(killed in set(runners["pid"]) and len(runners) == 2, "the run was not taken up by a second runner")
    _expect(output["packages"] == packages and len(visits) == len(packages), "a package was read twice, or not at all")
    _expect(output["lines"] == sum(map(survivor.lines_of, packages)), "the sum of the lines differs")
    console.print(
        f"[green]✓[/] {len(packages)} packages in {len(visits)} finished steps, and {len(attempts) - len(visits)} "
        f"that was cut off and begun again; {output['lines']:,} lines, as counted again here"
    )


def _kill_in_the_middle(console: Console, run: Run, told: set[str]) -> int:
    until = time.monotonic() + PATIENCE
    with console.status("the runner starts"):
        while len(told) < KILL_AFTER:
            _tell(console, run, told)
            _expect(run.status in {"queued", "running"} and time.monotonic() < until, f"the run is {run.status}")
            time.sleep(LOOK_SECONDS)
        time.sleep(SECONDS_EACH / 2)
    pid = int(run.runners(status="running")["pid"].iloc[-1])
    os.kill(pid, signal.SIGKILL)
    console.print(f"  [bold red]✗ SIGKILL[/] to the runner, process {pid}")
    return pid


def _frame(console: Console, title: str, frame: pd.DataFrame, *columns: str) -> None:
    console.print(tables.of_frame(title, frame, columns))


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise pw.RunFailed(f"the demo did not come out as it should: {otherwise}")
