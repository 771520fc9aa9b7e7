"""Each condition that the doctor knows, made true."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
import types
from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook import doctor as checks
from pi_workflows_nb.runner import proc
from pi_workflows_nb.server.clock import Drift
from pi_workflows_nb.state import filesystems
from tests.hostile.disks import full, small_disk
from tests.hostile.surroundings import until

CHECKS = ["sqlite", "libraries", "filesystem", "disk", "file", "server", "log", "processes", "clock"]


@pytest.fixture
def server(tmp_path):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as served:
        yield served


def row(check, database):
    report = pw.doctor(database)
    assert list(report.columns) == ["check", "status", "what", "what_to_do"]
    found = report[report.check == check].iloc[0]
    assert found.status == "ok" or found.what_to_do, "whatever is not well says what helps"
    return found.status, found.what + " | " + found.what_to_do


def test_a_healthy_server_has_a_row_for_each_check(server):
    report = pw.doctor()
    assert report.check.tolist() == CHECKS
    assert report.attrs["database"] == str(server.database)
    assert set(report.status[report.check != "sqlite"]) == {"ok"}
    assert report.status.cat.ordered
    assert repr(report).splitlines()[0].startswith("sqlite")
    assert "<table" in report._repr_html_()
    assert pw.doctor(server).what.tolist()[:3] == pw.doctor(server.database).what.tolist()[:3]


def test_what_is_no_file_yet_is_told(tmp_path):
    assert row("file", tmp_path / "none.sqlite") == (
        "ok",
        f"{tmp_path / 'none.sqlite'} does not exist yet | pw.start() makes it",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("version", "status"), [((3, 51, 2), "note"), ((3, 51, 3), "ok")])
def test_an_old_sqlite_is_told(tmp_path, monkeypatch, version, status):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    told, text = row("sqlite", tmp_path / "s.sqlite")
    assert told == status
    assert ("checkpoint" in text) == (status == "note")


def test_another_sqlite_library_in_the_servers_kernel_is_told(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apsw", types.ModuleType("apsw"))
    status, text = row("libraries", server)
    assert status == "warning"
    assert "apsw" in text
    assert 'server="process"' in text
    assert row("libraries", tmp_path / "another.sqlite")[0] == "note"


def test_a_network_filesystem_is_told(tmp_path, monkeypatch):
    table = tmp_path / "mounts"
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {tmp_path} rw shared:1 - fuse.sshfs host:/x rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", table)
    status, text = row("filesystem", tmp_path / "s.sqlite")
    assert status == "problem"
    assert "fuse.sshfs" in text
    assert 'database="local"' in text


def test_a_disk_in_memory_and_one_that_is_full_are_told(tmp_path):
    with small_disk(tmp_path / "disk", "32m") as disk:
        assert row("filesystem", disk / "s.sqlite")[0] == "warning"
        assert row("disk", disk / "s.sqlite")[0] == "warning"
        with full(disk):
            status, text = row("disk", disk / "s.sqlite")
        assert status == "problem"
        assert "0 bytes are free" in text


def test_a_cell_that_slows_the_server_is_told(server):
    def told_after_a_cell_in_c():
        ctypes.PyDLL(None).usleep(900_000)  # which keeps the interpreter for itself
        return row("server", server)[0] == "warning"

    until(told_after_a_cell_in_c)
    text = row("server", server)[1]
    assert "the cell slows the server" in text
    assert 'server="process"' in text


def test_a_server_process_that_was_stopped_is_told(tmp_path):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server="process") as server:
        pid = server.status()["pid"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.9)
        os.kill(pid, signal.SIGCONT)
        until(lambda: row("server", server)[0] == "warning", 3)
        assert "cell" not in row("server", server)[1]


READER = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
connection.execute("BEGIN")
connection.execute("SELECT * FROM runs").fetchone()
print("reading", flush=True)
sys.stdin.readline()
connection.close()
"""


def test_who_pins_the_log_is_told(server, monkeypatch):
    monkeypatch.setattr(checks, "PINNED_LOG", 1)
    wf = pw.Workflow("one", start_at="step")
    wf.compute(name="step")(lambda ctx: 1)
    server.run(wf).wait(timeout=30)
    assert row("log", server)[0] == "ok"
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(server.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout.readline() == "reading\n"
        status, text = row("log", server)
        assert status == "warning"
        assert f"{reader.pid} ({sys.executable}" in text
        reader.stdin.write("\n")
    assert row("log", server)[0] == "ok"
    with closing(sqlite3.connect(server.database)) as cell:
        pinning = cell.execute("SELECT * FROM blobs")
        pinning.fetchone()
        assert "this kernel" in row("log", server)[1]
        pinning.close()
    monkeypatch.setattr(checks, "LONG_LOG", 1)
    assert row("log", server)[0] == "note"


def test_what_a_runner_left_is_told(server):
    wf = pw.Workflow("one", start_at="step")
    wf.compute(name="step")(lambda ctx: 1)
    server.run(wf).wait(timeout=30)
    until(lambda: server.runners().finished_at.notna().all())
    epoch = server.runners().index[0]
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, proc.EPOCH_VARIABLE: epoch}
    ) as left:
        status, text = row("processes", server)
        left.kill()
    assert status == "warning"
    assert f"kill {left.pid}" in text
    assert row("processes", server)[0] == "ok"


def test_a_running_runner_is_no_orphan(server, tmp_path):
    gate = tmp_path / "gate"
    wf = pw.Workflow("one", start_at="step")

    @wf.compute
    def step(ctx):
        while not gate.exists():
            time.sleep(0.01)

    run = server.run(wf)
    until(lambda: run.status == "running" and len(server.attempts()) == 1)
    assert row("processes", server)[0] == "ok"
    gate.touch()
    run.wait(timeout=30)


def test_jumps_and_pauses_of_the_clock_are_told(server, monkeypatch):
    drift = server._connection._present._thread.server.drift
    offsets = Drift.__init__.__globals__["_offsets"]()
    for wall, asleep, status, words in (
        (3600, 0, "warning", "back by 3600.0 s"),
        (-3600, 0, "warning", "forward by 3600.0 s"),
        (0, -60, "note", "slept for 60 s"),
        (0, 0, "ok", "no jump"),
    ):
        drift._wall, drift._asleep = offsets[0] + wall, offsets[1] + asleep
        told, text = row("clock", server)
        assert told == status
        assert words in text


def test_a_file_from_the_future_and_an_owner_that_is_gone_are_told(tmp_path):
    path = tmp_path / "s.sqlite"
    pw.start(database=path, project=tmp_path).stop()
    assert row("file", path) == ("ok", "at rest: no server owns it | pw.start() serves it")
    ahead = int(time.time() * 1000) + 3_600_000

    def record(pid, identity):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "UPDATE workflow_host_state SET host_id = 'host-x', token_hash = zeroblob(32), pid = ?,"
                " process_start_identity = ?, started_at = ?, heartbeat_at = ?, expires_at = ?",
                (pid, identity, ahead, ahead, ahead),
            )
            connection.commit()

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        identity = proc.start_identity(other.pid)
        record(other.pid, identity)
        status, text = row("file", path)
        assert status == "note"
        assert f"pid {other.pid}" in text
    assert row("file", path)[0] == "warning"
    status, text = row("clock", path)
    assert status == "warning"
    assert "in the future" in text


def test_a_file_that_was_moved_away_or_is_none_is_told(server, tmp_path):
    server.database.rename(tmp_path / "elsewhere")
    assert row("file", server)[0] == "problem"
    (tmp_path / "elsewhere").rename(server.database)
    assert row("file", server)[0] == "ok"
    (tmp_path / "text").write_text("hello, this is no database at all\n" * 100)
    status, text = row("file", tmp_path / "text")
    assert status == "problem"
    assert "no SQLite file" in text
