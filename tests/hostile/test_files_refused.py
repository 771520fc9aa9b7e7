"""What `pw.start` says to paths that hold no state file it could serve: one sentence, and nothing is touched."""

from __future__ import annotations

import os

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.state import filesystems
from pi_workflows_nb.wire.sockets import socket_path
from tests.hostile.disks import contents
from tests.state.test_database_refusals import REFUSED


def refused(path, words, tmp_path, placement):
    before = contents(path.parent)
    with pytest.raises(pw.StateFileError, match=words) as told:
        pw.start(database=path, project=tmp_path, server=placement)
    text = str(told.value)
    assert str(path.name) in text
    assert ": " in text
    assert "\n" not in text
    assert contents(path.parent) == before


@pytest.mark.parametrize("kind", REFUSED)
def test_no_state_file_is_refused_and_untouched(kind, tmp_path, placement):
    make, words = REFUSED[kind]
    path = tmp_path / "in" / "state.sqlite"
    path.parent.mkdir()
    make(path)
    refused(path, words, tmp_path, placement)
    if placement == "thread":
        # The kernel is as good as new.
        with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as server:
            assert server.status()["epoch"] == 1


def test_a_symlink_leads_to_the_one_server_of_its_file(tmp_path, placement):
    (tmp_path / "in").mkdir()
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "in" / "s.sqlite")
    with pw.start(database=link, project=tmp_path, server=placement) as server:
        assert server.database == tmp_path / "in" / "s.sqlite"
        assert pw.start(database=tmp_path / "in" / "s.sqlite", project=tmp_path) is server
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "link.sqlite"]


def test_a_file_with_two_names_is_refused_until_one_is_gone(tmp_path, placement):
    folder = tmp_path / "in"
    folder.mkdir()
    pw.start(database=folder / "s.sqlite", project=tmp_path).stop()
    os.link(folder / "s.sqlite", folder / "other")
    for name in ("s.sqlite", "other"):
        refused(folder / name, "2 hard links", tmp_path, placement)
    (folder / "other").unlink()
    pw.start(database=folder / "s.sqlite", project=tmp_path, server=placement).stop()


@pytest.mark.parametrize("name", ["a\0b", "x" * 240, "s.sqlite/inner"])
def test_a_path_that_cannot_be_is_refused(tmp_path, placement, name):
    (tmp_path / "s.sqlite").touch()
    before = contents(tmp_path)
    with pytest.raises(pw.StateFileError) as told:
        pw.start(database=f"{tmp_path}/{name}", project=tmp_path, server=placement)
    assert "\n" not in str(told.value)
    assert contents(tmp_path) == before


def test_a_network_filesystem_is_refused_and_a_local_path_is_offered(tmp_path, placement, monkeypatch):
    table = tmp_path / "mounts"
    shared = tmp_path / "shared"
    shared.mkdir()
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {shared} rw,relatime shared:1 - nfs4 host:/x rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", table)
    refused(shared / "s.sqlite", r"network filesystem \(nfs4\).*database=\"local\"", tmp_path, placement)
    assert list(shared.iterdir()) == []
    monkeypatch.setattr("pi_workflows_nb.notebook.starting.LOCAL_FOLDERS", (tmp_path,))
    monkeypatch.chdir(tmp_path)
    if placement == "thread":
        # Another process reads the real table, which says the same of this folder.
        with pw.start(database="local") as server:
            assert server.database == tmp_path / f"pi-workflows-nb-{os.getuid()}" / "state.sqlite"


def test_a_path_too_long_for_a_socket_is_served_all_the_same(tmp_path, placement, monkeypatch):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setenv("PI_WORKFLOWS_HOME", str(deep / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pw.start(database=deep / "s.sqlite", project=tmp_path, server=placement) as server:
        assert server.status()["epoch"] == 1
        where = socket_path(server.database, deep / "home")
        assert where.exists()
        assert len(str(where)) < 108
        if where.exists():
            assert where.stat().st_mode & 0o777 == 0o600
            assert where.parent.stat().st_mode & 0o777 == 0o700
    assert not where.exists()


def test_a_folder_for_sockets_that_others_can_write_to_is_refused(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PI_WORKFLOWS_HOME", str(home))
    pw.start(database=tmp_path / "s.sqlite", project=tmp_path).stop()
    home.chmod(0o777)
    with pytest.raises(pw.StateFileError, match="writable by nobody else"):
        pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server="process")
    home.chmod(0o700)
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server="process") as server:
        assert server.status()["epoch"] == 3, "the one that could not listen gave the file back"
