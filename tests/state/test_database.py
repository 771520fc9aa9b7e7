from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from pi_workflows_nb.state import admission, database, filesystems, shape
from pi_workflows_nb.state.database import Database, open_read_only
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import StateFileError, StateUnavailableError
from tests.state.files import NOW


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def put(opened, text):
    with opened.transaction() as connection:
        connection.execute("INSERT INTO projects VALUES (?, ?, ?)", (text, text, NOW))


def projects(connection):
    return [name for (name,) in connection.execute("SELECT project_id FROM projects ORDER BY project_id")]


def test_a_new_file_is_marked_private_and_whole(tmp_path):
    path = tmp_path / "made" / "here" / "state.sqlite"
    tmp_path.chmod(0o755)
    with closing(Database.open(path, NOW)) as opened:
        assert opened.path == path
        connection = opened.connection
        assert connection.execute("PRAGMA application_id").fetchone() == (0x50495746,)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        row = connection.execute("SELECT * FROM schema_meta").fetchone()
        assert row[:4] == (1, "pi-workflows-state", 1, identities.sha256(shape.SCHEMA_SQL.read_bytes()))
        assert row[4].startswith("pi-workflows-nb ")
        assert row[5:] == (NOW, NOW)
        assert shape.difference(shape.shape_of(connection)) is None
        assert admission.made_here(connection)
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == ["state.sqlite"]


def test_the_settings_of_the_writer(database):
    settings = {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000, "cache_size": -64000,
        "journal_size_limit": 67108864, "wal_autocheckpoint": 0, "encoding": "UTF-8", "page_size": 4096,
    }  # fmt: skip
    for name, value in settings.items():
        assert database.connection.execute(f"PRAGMA {name}").fetchone() == (value,), name
    assert database.connection.isolation_level is None


def test_it_is_the_writer_of_one_thread(database):
    caught = []

    def use():
        try:
            database.connection.execute("SELECT 1")
        except sqlite3.ProgrammingError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_what_was_committed_is_there_again(state_file):
    for index in range(3):
        with closing(Database.open(state_file, NOW + index)) as opened:
            put(opened, f"p{index}")
            assert projects(opened.connection) == [f"p{i}" for i in range(index + 1)]
    with closing(open_read_only(state_file)) as reading:
        assert reading.execute("SELECT created_at FROM schema_meta").fetchone() == (NOW,)


def test_a_name_that_is_a_link_means_what_it_points_to(tmp_path):
    (tmp_path / "link.sqlite").symlink_to("real.sqlite")
    with closing(Database.open(tmp_path / "link.sqlite", NOW)) as opened:
        assert opened.path == tmp_path / "real.sqlite"
        put(opened, "p")
    with closing(open_read_only(tmp_path / "link.sqlite")) as reading:
        assert projects(reading) == ["p"]
    assert names(tmp_path) == ["link.sqlite", "real.sqlite"]


def test_names_with_signs_that_mean_something_in_a_uri(tmp_path):
    path = tmp_path / "a b?mode=ro#x%20&é.sqlite"
    with closing(Database.open(path, NOW)) as opened:
        put(opened, "p")
    with closing(open_read_only(path)) as reading:
        assert projects(reading) == ["p"]
    assert names(tmp_path) == [path.name]


def test_many_may_make_the_same_file_at_once(state_file):
    errors = []

    def make(index):
        try:
            with closing(Database.open(state_file, NOW)) as opened:
                put(opened, f"p{index}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=make, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with closing(open_read_only(state_file)) as reading:
        assert len(projects(reading)) == 6
    assert names(state_file.parent) == ["state.sqlite"]


def test_a_creation_that_breaks_off_leaves_nothing_under_the_name(state_file, monkeypatch):
    monkeypatch.setattr(database, "schema_text", lambda: "CREATE TABLE half (a) STRICT")
    with pytest.raises(StateFileError):
        Database.open(state_file, NOW)
    assert names(state_file.parent) == []


def test_a_creation_without_hard_links_works_too(state_file, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    Database.open(state_file, NOW).close()
    assert names(state_file.parent) == ["state.sqlite"]


def test_an_error_rolls_everything_back(database):
    put(database, "kept")

    def fail(error):
        with database.transaction() as connection:
            connection.execute("INSERT INTO projects VALUES ('lost', 'lost', 1)")
            raise error

    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(error)
    with pytest.raises(sqlite3.IntegrityError):
        put(database, "kept")
    assert not database.connection.in_transaction
    assert projects(database.connection) == ["kept"]


def test_a_deferred_constraint_that_fails_at_the_commit_rolls_back(database):

    def insert():
        with database.transaction() as connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")
            connection.execute("INSERT INTO leases(resource_id) VALUES ('run-none')")

    with pytest.raises(sqlite3.IntegrityError):
        insert()
    assert not database.connection.in_transaction
    assert database.connection.execute("SELECT count(*) FROM leases").fetchone() == (0,)


def test_a_full_file_is_unavailable_and_goes_on_when_there_is_room(database):
    put(database, "before")
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StateUnavailableError, match="full"):
        put(database, "x" * 100_000)
    assert projects(database.connection) == ["before"]
    database.connection.execute("PRAGMA max_page_count = 1000000")
    put(database, "x" * 100_000)
    assert len(projects(database.connection)) == 2


def test_an_io_error_in_the_log_is_unavailable_and_changes_nothing(database, state_file):
    put(database, "before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(f"{state_file}-wal").st_size, limits[1]))
    try:
        with pytest.raises(StateUnavailableError):
            put(database, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert projects(database.connection) == ["before"]
    put(database, "after")
    with closing(open_read_only(state_file)) as reading:
        assert projects(reading) == ["after", "before"]


def test_a_read_only_file_is_unavailable(database):
    database.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StateUnavailableError, match="readonly"):
        put(database, "p")


def test_a_writer_in_the_way_is_unavailable(database, state_file):
    database.connection.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(state_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateUnavailableError, match="locked"):
            put(database, "p")
        other.execute("ROLLBACK")
    put(database, "p")


def test_a_fault_of_a_statement_is_not_called_unavailable(database):

    def read():
        with database.transaction() as connection:
            connection.execute("SELECT * FROM nowhere")

    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        read()
    assert not database.connection.in_transaction


def test_checkpoints_come_when_they_are_called_for(database, state_file):
    size = state_file.stat().st_size
    for index in range(200):
        put(database, f"{index:04}" * 1000)
    assert state_file.stat().st_size == size
    pages, moved = database.checkpoint()
    assert pages == moved > 200
    assert state_file.stat().st_size > size


def test_a_checkpoint_waits_for_nobody(database, state_file):
    put(database, "a")
    with closing(open_read_only(state_file)) as reading:
        reading.execute("BEGIN")
        assert projects(reading) == ["a"]
        put(database, "b")
        pages, moved = database.checkpoint()
        assert moved < pages
        reading.execute("ROLLBACK")
    pages, moved = database.checkpoint()
    assert moved == pages


def test_reading_a_live_file_from_any_thread(database, state_file):
    put(database, "p")
    found = []

    def read(connection):
        found.append(projects(connection))

    with closing(open_read_only(state_file)) as reading:
        threads = [threading.Thread(target=read, args=(reading,)) for _ in range(2)]
        for thread in threads:
            thread.start()
            thread.join()
        put(database, "q")
        assert projects(reading) == ["p", "q"]
        assert reading.execute("PRAGMA foreign_keys").fetchone() == (1,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reading.execute("DELETE FROM projects")
    assert found == [["p"], ["p"]]


def test_reading_a_file_at_rest_leaves_nothing_beside_it(state_file):
    with closing(Database.open(state_file, NOW)) as opened:
        put(opened, "p")
    before = state_file.read_bytes(), state_file.stat().st_mtime_ns
    for live in (None, False):
        with closing(open_read_only(state_file, live=live)) as reading:
            assert projects(reading) == ["p"]
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reading.execute("DELETE FROM projects")
        assert names(state_file.parent) == ["state.sqlite"]
    assert (state_file.read_bytes(), state_file.stat().st_mtime_ns) == before


def test_what_a_killed_writer_had_committed_is_read(database, state_file, tmp_path):
    put(database, "p")
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{state_file}{suffix}", killed / f"state.sqlite{suffix}")
    for live in (None, False):
        with closing(open_read_only(killed / "state.sqlite", live=live)) as reading:
            assert projects(reading) == ["p"]
    with closing(Database.open(killed / "state.sqlite", NOW)) as opened:
        assert projects(opened.connection) == ["p"]


def test_a_reader_does_not_create_a_file(state_file):
    with pytest.raises(StateFileError, match="no state file"):
        open_read_only(state_file)
    assert names(state_file.parent) == []


def test_looking_keeps_the_locks_of_the_writer(database, state_file):
    """Closing any descriptor of the file would free them, were it not closed through SQLite."""
    busy = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "try: c.execute('BEGIN IMMEDIATE')\nexcept sqlite3.OperationalError as e: print(e)"
    )
    with database.transaction() as connection:
        connection.execute("INSERT INTO projects VALUES ('p', 'p', 1)")
        open_read_only(state_file).close()
        open_read_only(state_file, live=True).close()
        Database.open(state_file, NOW).close()
        other = subprocess.run([sys.executable, "-c", busy, state_file], capture_output=True, text=True, check=True)
    assert other.stdout == "database is locked\n"


MOUNTS = """\
21 1 0:20 / / rw,relatime - ext4 /dev/root rw
30 21 0:30 / /home rw shared:1 - nfs4 server:/home rw
31 30 0:31 / /home/me/disk rw - xfs /dev/sdb rw
32 21 0:32 / /mnt/with\\040space rw shared:2 master:1 - fuse.sshfs host: rw
33 21 0:33 / /mnt/share rw - cifs //host/share rw
34 21 0:34 / /mnt/p rw - 9p host rw
35 21 0:35 / /mnt/fuse rw - fuse.mergerfs x rw
36 21 0:36 / /mnt/share rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/x", None),
        ("/home/me/x.sqlite", "nfs4"),
        ("/home", "nfs4"),
        ("/homeless/x", None),
        ("/home/me/disk/x", None),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/mnt/share/x", None),
        ("/mnt/p/x", "9p"),
        ("/mnt/fuse/x", None),
    ],
)
def test_a_path_lies_on_the_last_mount_above_it(tmp_path, path, kind):
    assert filesystems.network_filesystem(tmp_path.__class__(path), MOUNTS) == kind


def test_a_network_filesystem_is_refused_for_writing(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(f"21 1 0:20 / {tmp_path} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", table)
    with pytest.raises(StateFileError, match=r"nfs4.*database=\"local\""):
        Database.open(tmp_path / "state.sqlite", NOW)
    assert names(tmp_path) == ["mountinfo"]


def test_a_death_between_naming_a_file_and_dropping_its_first_name_costs_nothing(tmp_path):
    path = tmp_path / "state.sqlite"
    Database.open(path, NOW).close()
    aside = tmp_path / ".state.sqlite.0123456789ab.new"
    os.link(path, aside)
    Database.open(path, NOW).close()
    assert not aside.exists()
