"""Others that open and close the live file, from inside the serving process and from outside: no commit is lost.

Closing any descriptor of a file drops the POSIX locks that a process holds on it, so a copy made in a cell takes
SQLite's own locks from the server beside it. Whoever opens and closes the file next would remove a log that is in use.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pandas as pd

import pi_workflows_nb as pw
from pi_workflows_nb.server.nursery import Nursery
from pi_workflows_nb.state.database import Database
from tests.hostile.surroundings import sound, until

COUNT = "SELECT count(*) FROM run_steps"


def ticks(gate):
    wf = pw.Workflow("ticks", start_at="tick", max_steps=100_000)

    @wf.compute
    def tick(ctx):
        import time

        time.sleep(0.002)
        return {"go": "end" if gate.exists() else "again"}

    @wf.compute
    def end(ctx):
        return "done"

    wf.edge("tick", switch="$.go", cases={"again": "tick", "end": "end"})
    return wf


def copied(path):
    shutil.copy(path, f"{path}.copy")


def read(path):
    with path.open("rb") as file:
        file.read()


def framed(path):
    with closing(sqlite3.connect(path)) as connection:
        pd.read_sql("SELECT * FROM run_steps", connection)


def connected(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(COUNT).fetchone()


INSIDE = (copied, read, framed, connected)
OUTSIDE = f"""
import shutil, sqlite3, sys
path = sys.argv[1]
shutil.copy(path, path + ".copy")
open(path, "rb").read()
connection = sqlite3.connect(path)
print(connection.execute({COUNT!r}).fetchone()[0])
connection.close()
"""


def seen_outside(path):
    """How many steps another program finds, which then closes the file."""
    found = [subprocess.run([sys.executable, "-c", OUTSIDE, str(path)], capture_output=True, text=True, check=True)]
    if shutil.which("sqlite3"):
        found.append(subprocess.run(["sqlite3", str(path), COUNT], capture_output=True, text=True, check=True))
    return [int(one.stdout) for one in found]


def test_no_commit_is_lost_to_those_who_open_and_close_the_file(tmp_path, placement):
    path, gate = tmp_path / "s.sqlite", tmp_path / "gate"
    with pw.start(database=path, project=tmp_path, server=placement) as server:
        run = server.run(ticks(gate))
        until(lambda: len(server.steps()) > 5)
        before, log = 0, os.stat(f"{path}-wal").st_ino
        for act in INSIDE * 2:
            act(path)
            seen = seen_outside(path)
            assert seen[0] > before, f"after {act.__name__} the steps of before are gone"
            assert seen == sorted(seen)
            before = seen[-1]
            assert os.stat(f"{path}-wal").st_ino == log, f"after {act.__name__} the log is another one"
            until(lambda least=before: len(server.steps()) > least)
        gate.touch()
        assert run.wait(timeout=30).output == "done"
        steps = len(server.steps())
        for act in INSIDE:
            act(path)
        assert seen_outside(path)[-1] == steps
    sound(path)
    assert seen_outside(path)[-1] == steps


def test_without_the_guard_the_same_loses_commits(tmp_path, monkeypatch):
    async def unguarded(self, path):
        return None

    monkeypatch.setattr(Nursery, "guard", unguarded)
    monkeypatch.setattr(Database, "secure", lambda self: None)  # the second net, for a log that somebody deleted
    path, gate = tmp_path / "s.sqlite", tmp_path / "gate"
    with pw.start(database=path, project=tmp_path) as server:
        server.run(ticks(gate))
        until(lambda: len(server.steps()) > 5)
        copied(path)
        seen = seen_outside(path)[-1]
        commits = server.status()["commits"]
        until(lambda: server.status()["commits"] > commits + 20)
        assert seen_outside(path)[-1] == seen, "what was committed since went into a log that has no name any more"
