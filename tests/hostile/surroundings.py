"""What the tests of hostile surroundings wait for and ask of a file."""

from __future__ import annotations

import time
from contextlib import closing

from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify


def until(true, seconds=20.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.02)
    return found


def sound(path):
    """A file that nobody serves tells one story."""
    with closing(open_read_only(path)) as connection:
        assert [finding for finding in verify(connection) if finding.severity == "error"] == []
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def gated(gate, ledger):
    """Three steps that write a ledger; the second one waits at the gate."""
    import pi_workflows_nb as pw

    wf = pw.Workflow("gated", start_at="first")

    def body(name):
        def write(ctx):
            import time

            while name == "second" and not gate.exists():
                time.sleep(0.01)
            with ledger.open("a") as file:
                file.write(name + "\n")
            return name

        return write

    for name in ("first", "second", "third"):
        wf.compute(name=name)(body(name))
    wf.edge("first", "second")
    wf.edge("second", "third")
    return wf
