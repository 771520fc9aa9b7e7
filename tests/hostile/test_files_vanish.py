"""The folder of a live file is moved away, or deleted: nothing is written into the void, and nothing is forgotten."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.client.connection import SocketConnection
from pi_workflows_nb.state.database import Database, open_read_only
from pi_workflows_nb.wire.sockets import socket_path
from tests.hostile.surroundings import gated, sound, until


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "state"
    made.mkdir()
    return made


def test_a_folder_that_comes_back_costs_nothing(tmp_path, folder, placement):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    with pw.start(database=folder / "s.sqlite", project=tmp_path, server=placement) as server:
        run = server.run(gated(gate, ledger))
        until(lambda: len(server.steps()) == 1)
        folder.rename(tmp_path / "elsewhere")
        gate.touch()
        with pytest.raises(pw.StateUnavailableError, match="not there any more") as told:
            server.run(gated(gate, ledger))
        assert str(folder / "s.sqlite") in str(told.value)
        time.sleep(0.5)
        assert server.status()["runners"] == 1
        with pytest.raises(pw.StateFileError, match="no state file"):
            server.steps()
        (tmp_path / "elsewhere").rename(folder)
        assert run.wait(timeout=30).output == "third"
        assert server.run(gated(gate, ledger)).wait(timeout=30).output == "third"
    assert ledger.read_text().split() == ["first", "second", "third"] * 2
    sound(folder / "s.sqlite")


def test_a_deleted_folder_is_told_and_another_file_in_its_place_is_left_alone(tmp_path, folder, placement):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    server = pw.start(database=folder / "s.sqlite", project=tmp_path, server=placement)
    server.run(gated(gate, ledger))
    until(lambda: len(server.steps()) == 1)
    shutil.rmtree(folder)
    gate.touch()
    with pytest.raises(pw.StateUnavailableError, match="not there any more"):
        server.run(gated(gate, ledger))
    # Somebody makes a new one there and works on it, before the old server has ended.
    other = pw.start(database=tmp_path / "new.sqlite", project=tmp_path)
    folder.mkdir()
    other.run(gated(gate, ledger)).wait(timeout=30)
    other.stop()
    shutil.copy(tmp_path / "new.sqlite", folder / "s.sqlite")
    before = (folder / "s.sqlite").read_bytes()
    (folder / "s.sqlite-wal").write_bytes(b"")
    with pytest.raises(pw.StateUnavailableError, match="another file now"):
        server.run(gated(gate, ledger))
    server.stop()
    assert (folder / "s.sqlite").read_bytes() == before
    assert (folder / "s.sqlite-wal").exists(), "the log of another file was removed"
    (folder / "s.sqlite-wal").unlink()
    with pw.start(database=folder / "s.sqlite", project=tmp_path, server=placement) as server:
        assert server.runs().status.tolist() == ["completed"]
        assert server.run(gated(gate, ledger)).wait(timeout=30).output == "third"
    sound(folder / "s.sqlite")


def test_a_log_that_somebody_deleted_takes_no_commit_with_it(tmp_path, folder):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    path = folder / "s.sqlite"
    server = pw.start(database=path, project=tmp_path, server="process")
    run = server.run(gated(gate, ledger))
    until(lambda: len(server.steps()) == 1)
    (folder / "s.sqlite-wal").unlink()
    gate.touch()
    until(lambda: server.status()["runs"] == {"completed": 1})
    os.kill(server.status()["pid"], signal.SIGKILL)
    with server:
        until(lambda: server.status()["epoch"] == 2)
        assert server.get_run(run.id).output == "third"
        assert len(server.steps()) == 3
    sound(path)


def test_who_cannot_read_because_of_a_deleted_log_is_told(tmp_path):
    path = tmp_path / "s.sqlite"
    with closing(Database.open(path, 1)) as database:
        with database.transaction() as connection:
            connection.execute("INSERT INTO projects VALUES ('p', 'p', 1)")
            connection.execute("PRAGMA user_version = 1")  # the log now holds the first page, which all readers need
        database.secure()
        (tmp_path / "s.sqlite-wal").unlink()
        with pytest.raises(pw.StateFileError, match=r"was deleted while .* stop the server and start it again"):
            open_read_only(path, live=True)
        with database.transaction() as connection:
            connection.execute("INSERT INTO projects VALUES ('q', 'q', 1)")
        database.secure()
        with closing(open_read_only(path, live=True)) as reading:
            assert reading.execute("SELECT count(*) FROM projects").fetchone() == (2,)


def test_a_socket_that_was_swept_away_comes_back(tmp_path, state_folder):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server="process") as server:
        where = socket_path(server.database, state_folder)
        where.unlink()
        assert server.status()["epoch"] == 1, "who is connected stays so"
        until(where.exists, 5)
        until(lambda: len(asked(where, tmp_path)) == 1, 5)
        # Another server's socket under the name, as when another file took the place of this one, is not removed.
        where.unlink()
        where.touch()
    assert where.exists()
    where.unlink()


def asked(where, project):
    try:
        second = SocketConnection(where, project / "s.sqlite", project)
    except pw.ServerStoppedError:
        return []
    try:
        return [second.request("server.status", {}).receipt["epoch"]]
    finally:
        second.close()
