"""Where workflows are found, in which order, and what is said when they are not."""

from __future__ import annotations

import os
import stat

import pytest

from pi_workflows_nb.wire.errors import NotFoundError, SourceError
from pi_workflows_nb.workflows import discovery
from pi_workflows_nb.workflows.discovery import available, find, save_cell, text_digest


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / ".pi" / "workflows").mkdir(parents=True)
    return folder


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_precedence(project, home, monkeypatch):
    monkeypatch.setitem(discovery.WORKFLOWS.builtins, "w", "built in")
    cells = {"w": "cell"}
    own = project / ".pi" / "workflows" / "w.workflow.py"
    shared = home / "w.workflow.py"
    own.write_text("own")
    shared.write_text("shared")
    assert find("w", project, cells, home=home).identity == {
        "type": "file",
        "ref": "cell:w",
        "revision": text_digest("cell"),
    }
    found = find("w", project, {}, home=home)
    assert (found.text, found.ref, found.path, found.name) == ("own", str(own.resolve()), own.resolve(), "w")
    own.unlink()
    assert find("w", project, home=home).text == "shared"
    shared.unlink()
    assert find("w", project, home=home).identity == {
        "type": "builtin",
        "ref": "w",
        "revision": text_digest("built in"),
    }
    own.write_text("own")
    assert find("builtin:w", project, cells, home=home).text == "built in"


def test_own_folder_by_default(project, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".pi" / "agent" / "workflows"
    folder.mkdir(parents=True)
    (folder / "x.workflow.py").write_text("x")
    assert available(project) == ["monitor", "plain-summary", "x"]


def test_paths(project, home, monkeypatch):
    (project / "flows").mkdir()
    file = project / "flows" / "nightly.workflow.py"
    file.write_text("n")
    for wanted in ("flows/nightly.workflow.py", str(file), file):
        found = find(wanted, project, home=home)
        assert (found.name, found.ref) == ("nightly", str(file.resolve()))
    plain = project / "plain.py"
    plain.write_text("\ufeffp", encoding="utf-8")
    assert find("plain.py", project, home=home).text == "p"
    with pytest.raises(NotFoundError, match=r"there is no workflow file .*/flows/other\.py"):
        find("flows/other.py", project, home=home)


def test_what_is_there_is_listed(project, home):
    with pytest.raises(NotFoundError, match=r"workflow 'x'; there are 'monitor', 'plain-summary'\. Workflows are %%w"):
        find("x", project, home=home)
    (project / ".pi" / "workflows" / "triage.workflow.py").write_text("")
    (project / ".pi" / "workflows" / "note.txt").write_text("")
    assert available(project, {"b": ""}, home=home) == ["b", "monitor", "plain-summary", "triage"]
    with pytest.raises(NotFoundError, match=r"no workflow 'triagee'; did you mean 'triage'\?"):
        find("triagee", project, home=home)
    with pytest.raises(NotFoundError, match=r"there are 'b', 'monitor', 'plain-summary', 'triage'\. Workflows are"):
        find("zzz", project, {"b": ""}, home=home)


def test_file_that_is_not_text(project, home):
    (project / "bad.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match=r"bad\.py cannot be read as UTF-8 text"):
        find("bad.py", project, home=home)


@pytest.mark.timeout(10)
def test_what_is_no_file_is_passed_over(project, home):
    """A pipe would never end, a folder is none, and who leads to himself leads nowhere."""
    folder = project / ".pi" / "workflows"
    os.mkfifo(folder / "pipe.workflow.py")
    (folder / "folder.workflow.py").mkdir()
    (folder / "loop.workflow.py").symlink_to("loop.workflow.py")
    (folder / "gone.workflow.py").symlink_to("nothing")
    for name in ("pipe", "folder", "loop", "gone"):
        with pytest.raises(NotFoundError, match="there is no workflow"):
            find(name, project, home=home)
    assert not {"pipe", "folder", "loop", "gone"} & set(available(project, home=home))


def test_cells_are_kept_once_under_their_digest(tmp_path):
    folder = tmp_path / "state.d" / "sources"
    path = save_cell("wf = 'ü'\n", folder)
    assert path.name == text_digest("wf = 'ü'\n") + ".py"
    assert path.read_text(encoding="utf-8") == "wf = 'ü'\n"
    assert save_cell("wf = 'ü'\n", folder) == path
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
