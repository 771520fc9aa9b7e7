"""Folders that may be read and not written, by a read-only mount and by permissions that bind an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import pi_workflows_nb as pw
from tests.hostile.disks import contents, read_only

AS_NOBODY = """
import json, os, sys
import pi_workflows_nb as pw
import pi_workflows_nb.notebook.server, pi_workflows_nb.server.local_connection, pi_workflows_nb.notebook.frames, pandas
os.setgid(65534)
os.setuid(65534)
try:
    pw.start(database=sys.argv[1], project="/", server=sys.argv[2])
    said = "started"
except pw.PiWorkflowsError as error:
    said = f"{type(error).__name__}: {error}"
try:
    read = len(pw.open_state(sys.argv[1]).runs())
except pw.PiWorkflowsError as error:
    read = str(error)
print(json.dumps([said, read]))
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "state"
    made.mkdir()
    pw.start(database=made / "s.sqlite", project=tmp_path).stop()
    return made


def test_a_file_on_a_read_only_mount_is_read_and_not_served(tmp_path, folder, placement):
    before = contents(folder)
    with read_only(folder):
        for name in ("s.sqlite", "new.sqlite"):
            with pytest.raises(pw.StateFileError, match="read-only") as told:
                pw.start(database=folder / name, project=tmp_path, server=placement)
            assert str(folder) in str(told.value)
            assert "\n" not in str(told.value)
        assert len(pw.open_state(folder / "s.sqlite").runs()) == 0
    assert contents(folder) == before
    with pw.start(database=folder / "s.sqlite", project=tmp_path, server=placement) as server:
        assert server.alive


def test_a_state_folder_on_a_read_only_mount_is_named(tmp_path, placement, monkeypatch):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "home").mkdir()
    with read_only(shelf):
        for home in (shelf / "none", shelf / "home"):
            monkeypatch.setenv("PI_WORKFLOWS_HOME", str(home))
            with pytest.raises(pw.PiWorkflowsError, match=str(shelf)) as told:
                pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement)
            assert "\n" not in str(told.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_nobody_cannot_serve_the_file_of_another(tmp_path, folder, placement):
    for above in [tmp_path, *tmp_path.parents][:3]:
        above.chmod(above.stat().st_mode | 0o055)
    folder.chmod(0o755)
    (folder / "s.sqlite").chmod(0o644)
    before = contents(folder)
    home = tmp_path / "home of nobody"
    home.mkdir()
    os.chown(home, 65534, 65534)
    told = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(folder / "s.sqlite"), placement],
        env={**os.environ, "PI_WORKFLOWS_HOME": str(home), "HOME": str(home), "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    said, read = json.loads(told.stdout)
    assert said.startswith("StateFileError: ")
    assert "read-only" in said
    assert read == 0
    assert contents(folder) == before
