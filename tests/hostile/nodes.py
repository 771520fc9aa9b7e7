"""Nodes that misbehave, written as cells are, beside a run that must not notice."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from contextlib import closing

import psutil

import pi_workflows_nb as pw
from pi_workflows_nb.notebook import starting
from pi_workflows_nb.notebook.server import Server
from pi_workflows_nb.state.database import open_read_only
from tests.hostile.surroundings import sound, until

OVERDUE_SECONDS = 1.8
LONGEST_GAP = 4.0
CELL = """
import pi_workflows_nb as pw
wf = pw.Workflow("hostile", start_at="before")

@wf.compute
def before(ctx):
    return "before"

@wf.{kind}
{define} bad(ctx):
{body}

@wf.compute
def after(ctx):
    print("after")
    return [ctx.results["bad"]["outcome"], ctx.outputs.get("bad")]

wf.edge("before", "bad")
wf.edge("bad", switch="$result.outcome", cases=dict.fromkeys(["ok", "failed", "timed_out", "cancelled"], "after"))
"""
_numbers = itertools.count(1)


def cell(text):
    """Execute a text as a cell: its functions are known by it alone, and its lines by the interpreter."""
    name = f"/tmp/ipykernel_1/{next(_numbers)}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), namespace)
    return namespace


def hostile(body, *, kind="compute", define="def"):
    """A workflow of three steps; this is the body of the second, the third gives outcome and output of the second."""
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return cell(CELL.format(kind=kind, define=define, body=body))["wf"]


def neighbour(ledger, end):
    """A workflow that goes on, a line in a ledger each step, until it is told to end."""
    wf = pw.Workflow("neighbour", start_at="tick", max_steps=1_000_000)

    @wf.compute
    def tick(ctx):
        import os
        import time

        with ledger.open("a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")
        time.sleep(0.02)
        return {"go": "no" if end.exists() else "yes"}

    @wf.compute
    def over(ctx):
        return "unhurt"

    wf.edge("tick", switch="$.go", cases={"yes": "tick", "no": "over"})
    return wf


class Host:
    """A server with a run that goes on all the while. `timing` are options of the server: runLeaseMs, …"""

    def __init__(self, folder, home, placement, **timing):
        for one in (folder, home):
            one.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / "s.sqlite"
        options = {"endWhenAlone": True, "maxRunners": 4, "preload": [], "runAhead": 16, **timing}
        options.setdefault("overdueSeconds", OVERDUE_SECONDS)
        connection = starting.connect(placement, self.path, home, folder, options)
        self.server = Server(connection, project=folder, session=None, home=home)
        self.ledger, self._end = folder / "ledger", folder / "end"
        self.neighbour = self.server.run(neighbour(self.ledger, self._end))
        until(self.ledger.exists)
        self.server.runs()  # opens what is opened once

    def ticks(self):
        """Process and moment of each step of the neighbour."""
        return [(int(line.split()[0]), float(line.split()[1])) for line in self.ledger.read_text().splitlines()]

    def check_unnoticed(self, since):
        """The neighbour went on, in one process, and never waited for long."""
        seen = len(self.ticks())
        until(lambda: len(self.ticks()) > seen + 2)
        ticks = self.ticks()[max(0, since - 1) :]
        assert len({pid for pid, _ in ticks}) == 1
        assert max(later - sooner for (_, sooner), (_, later) in itertools.pairwise(ticks)) < LONGEST_GAP
        assert self.server.alive

    def run(self, wf, given=None):
        return self.server.run(wf, given)

    def ended(self, wf, given=None, timeout=30):
        """Run a workflow until it ended or waits for a person."""
        run = self.run(wf, given).wait(timeout=timeout)
        self.check_gone(run)
        return run

    def rows(self, query, *parameters):
        with closing(open_read_only(self.path)) as connection:
            return connection.execute(query, parameters).fetchall()

    def view(self, run):
        return self.server._connection.request("run.status", {}, run_id=run.id).receipt

    def runners(self, run):
        """Outcomes of a run's runners, oldest first, once all of them have one."""

        def outcomes():
            rows = self.rows("SELECT status FROM run_workers WHERE run_id = ? ORDER BY rowid", run.id)
            return [row[0] for row in rows]

        until(lambda: not {"starting", "ready", "running"} & set(outcomes()))
        return outcomes()

    def pid(self, run):
        """The process of a run's runner, None while there is none."""
        found = self.rows(
            "SELECT pid FROM run_workers WHERE run_id = ? AND status = 'running' AND pid IS NOT NULL", run.id
        )
        return found[0][0] if found else None

    def step(self, run, node="bad"):
        """Status and error of the last step of a node."""
        return self.rows(
            "SELECT a.status, CAST(b.content AS TEXT) FROM run_steps s JOIN node_attempts a USING (attempt_id)"
            " LEFT JOIN blobs b ON b.blob_hash = a.error_hash WHERE s.run_id = ? AND a.node_id = ?"
            " ORDER BY s.step_index DESC LIMIT 1",
            run.id,
            node,
        )[0]

    def check_gone(self, run):
        """Nothing of a run's processes is left."""
        pids = [row[0] for row in self.rows("SELECT pid FROM run_workers WHERE run_id = ?", run.id) if row[0]]
        until(lambda: not [pid for pid in pids if psutil.pid_exists(pid)], 10)

    def close(self):
        self._end.touch()
        try:
            self.neighbour.wait(timeout=20)
            assert self.neighbour.output == "unhurt"
            assert self.runners(self.neighbour) == ["exited"]
        finally:
            self.server.stop()
        sound(self.path)


def printed(run, node="bad"):
    """What a node printed, as one text."""
    return "\n".join(run.logs(node=node).text)
