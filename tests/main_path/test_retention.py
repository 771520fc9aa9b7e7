"""Old runs leave a file by themselves while its server is idle."""

from __future__ import annotations

import datetime as dt

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.server import retaining
from tests.hostile.surroundings import sound, until

WF = pw.Workflow("one", start_at="only")
WF.compute(lambda ctx: [ctx.input] * 1000, name="only")


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(retaining, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(retaining, "EVERY_SECONDS", 0.1)


def test_an_idle_server_lets_go_what_ended_long_ago(state_file, tmp_path):
    gate = tmp_path / "gate"
    held = pw.Workflow("held", start_at="only")

    @held.compute
    def only(ctx):
        import time

        while not gate.exists():
            time.sleep(0.01)

    with pw.start(database=state_file, project=tmp_path, retention=dt.timedelta()) as server:
        run = server.run(held)
        until(lambda: run.status == "running")
        done = server.run(WF, 1)
        until(lambda: done.status == "completed")
        size = len(server.blobs())
        assert len(server.runs()) == 2, "it is not idle"
        gate.touch()
        until(lambda: len(server.runs()) == 0)
        until(lambda: len(server.blobs()) < size - 5)
        assert len(server.verify()) == 0
    sound(state_file)


def test_none_keeps_everything(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path, retention=None) as server:
        server.run(WF, 1).wait()
        tasks = server._connection._present._thread.server._tasks
        assert not [task for task in tasks if "Retaining" in repr(task) and not task.done()]
        assert len(server.runs()) == 1


def test_an_age_is_an_age(state_file):
    for age in (dt.timedelta(days=-1), 30):
        with pytest.raises(pw.StateFileError, match="retention"):
            pw.start(database=state_file, retention=age)
