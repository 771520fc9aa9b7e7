from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
from contextlib import closing

import pytest

from pi_workflows_nb.state.database import Database, open_read_only
from pi_workflows_nb.wire.errors import StateFileError
from tests.state.files import NOW, rebuild_original


def snapshot(folder):
    return {
        path.name: (path.read_bytes() if path.is_file() else None, path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in folder.iterdir()
    }


@pytest.fixture
def ours(state_file):
    Database.open(state_file, NOW).close()
    return state_file


def changed(*statements):
    def make(path):
        Database.open(path, NOW).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            for statement in statements:
                connection.execute(statement)

    return make


def truncated(path):
    Database.open(path, NOW).close()
    os.truncate(path, path.stat().st_size - 4096 * 3)


def cut_in_the_header(path):
    Database.open(path, NOW).close()
    os.truncate(path, 60)


def scrambled(path):
    Database.open(path, NOW).close()
    data = bytearray(path.read_bytes())
    data[100:4096] = bytes(range(256)) * 15 + bytes(156)
    path.write_bytes(data)


def other_in_wal_mode(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.commit()


REFUSED = {
    "a folder": (lambda path: path.mkdir(), "folder"),
    "a pipe": (os.mkfifo, "pipe"),
    "an empty file": (lambda path: path.touch(), "empty file"),
    "text": (lambda path: path.write_text("hello, this is no database at all\n" * 100), "no SQLite file"),
    "one byte": (lambda path: path.write_bytes(b"S"), "too short"),
    "another program's file": (other_in_wal_mode, "something else"),
    "another application id": (changed("PRAGMA application_id = 7"), "something else"),
    "a newer version": (changed("PRAGMA user_version = 2"), "newer version"),
    "an older version": (changed("PRAGMA user_version = 0"), "at version 0"),
    "no row of meta data": (changed("DELETE FROM schema_meta"), "None"),
    "another name": (
        changed("PRAGMA ignore_check_constraints = ON", "UPDATE schema_meta SET schema_name = 'x'"),
        "'x'",
    ),
    "another schema version": (
        changed("PRAGMA ignore_check_constraints = ON", "UPDATE schema_meta SET schema_version = 2"),
        "2",
    ),
    "a table too few": (changed("DROP TABLE channel_cursors"), "channel_cursors is missing"),
    "a table too much": (changed("CREATE TABLE more (a)"), "more is too much"),
    "a column too much": (changed("ALTER TABLE runs ADD COLUMN more TEXT"), "columns of the table runs"),
    "an index too few": (changed("DROP INDEX runs_status_idx"), "runs_status_idx is missing"),
    "a trigger": (changed("CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END"), "trigger t"),
    "a truncated file": (truncated, "damaged"),
    "a file cut in its header": (cut_in_the_header, "too short"),
    "scrambled pages": (scrambled, "damaged"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_state_file_is_refused_and_untouched(kind, tmp_path):
    make, words = REFUSED[kind]
    path = tmp_path / "in" / "state.sqlite"
    path.parent.mkdir()
    make(path)
    before = snapshot(path.parent)
    for attempt in (lambda: Database.open(path, NOW), lambda: open_read_only(path)):
        with pytest.raises(StateFileError, match=words) as caught:
            attempt()
        text = str(caught.value)
        assert str(path) in text
        assert ": " in text
        assert "\n" not in text
        assert snapshot(path.parent) == before


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("s")
        with pytest.raises(StateFileError, match="socket"):
            Database.open("s", NOW)


def test_another_programs_live_file_is_refused_and_keeps_its_log(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        before = path.read_bytes(), (tmp_path / "other.sqlite-wal").read_bytes()
        with pytest.raises(StateFileError, match="something else"):
            Database.open(path, NOW)
        assert (path.read_bytes(), (tmp_path / "other.sqlite-wal").read_bytes()) == before
        assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]


def test_a_file_with_several_hard_links_is_refused_for_writing_alone(ours):
    os.link(ours, ours.with_name("other"))
    before = snapshot(ours.parent)
    with pytest.raises(StateFileError, match="2 hard links"):
        Database.open(ours, NOW)
    open_read_only(ours).close()
    assert snapshot(ours.parent) == before
    ours.with_name("other").unlink()
    Database.open(ours, NOW).close()


def test_the_log_of_a_file_that_is_gone_is_not_given_to_a_new_one(ours):
    with closing(Database.open(ours, NOW)) as opened:
        with opened.transaction() as connection:
            connection.execute("INSERT INTO projects VALUES ('p', 'p', 1)")
        shutil.copy(f"{ours}-wal", ours.with_name("new.sqlite-wal"))
    before = snapshot(ours.parent)
    with pytest.raises(StateFileError, match="left over"):
        Database.open(ours.with_name("new.sqlite"), NOW)
    assert snapshot(ours.parent) == before


def test_a_link_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StateFileError):
        Database.open(tmp_path / "a", NOW)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_an_impossible_name_is_refused(tmp_path, name):
    with pytest.raises(StateFileError):
        Database.open(tmp_path / name, NOW)


def test_a_folder_that_is_a_file_is_refused(ours):
    with pytest.raises(StateFileError):
        Database.open(ours / "state.sqlite", NOW)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind this user")
def test_what_cannot_be_written_is_refused_for_writing_alone(ours):
    ours.chmod(0o400)
    with pytest.raises(StateFileError, match="read-only"):
        Database.open(ours, NOW)
    open_read_only(ours).close()


def test_a_file_of_another_implementation_is_read_and_written_only_when_adopted(state_file):
    rebuild_original(state_file)
    before = snapshot(state_file.parent)
    with closing(open_read_only(state_file)) as reading:
        assert reading.execute("SELECT count(*) FROM runs").fetchone() == (35,)
    with pytest.raises(StateFileError, match="adopt=True"):
        Database.open(state_file, NOW)
    assert snapshot(state_file.parent) == before
    with closing(Database.open(state_file, NOW, adopt=True)) as opened:
        digest, version = opened.connection.execute("SELECT schema_digest, app_version FROM schema_meta").fetchone()
        assert digest.hex().startswith("c2316603")
        assert version == "0.14.0"


@pytest.mark.parametrize("name", [b"CREATE TABLE runs", b" resource_id TEXT", b"CREATE INDEX"])
def test_a_byte_of_the_schema_that_is_no_text_is_damage_or_means_nothing(ours, name):
    content, refused = ours.read_bytes(), 0
    for found in re.finditer(name, content):
        spoilt = bytearray(content)
        spoilt[found.end() - 1] = 0xFF
        ours.write_bytes(spoilt)
        try:
            Database.open(ours, NOW).close()
        except StateFileError:
            refused += ours.read_bytes() == spoilt
    assert refused
