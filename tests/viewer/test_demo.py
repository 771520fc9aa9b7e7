"""The demo does the main job with the real parts, loses a runner to SIGKILL, and checks its own results."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import time

import pytest

import pi_workflows_nb as pw
from tests.repositories import make_repository

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where temporary folders are made, so that one left behind is seen; sockets have a folder of their own."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    with tempfile.TemporaryDirectory(prefix="pw", dir="/tmp") as sockets:
        monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
        yield folder


@pytest.fixture
def empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def demo(*options, cwd):
    result = subprocess.run(
        [*PROGRAM, "demo", *options], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_where_there_is_no_history_it_reads_the_standard_library(empty, temporary, state_folder):
    printed = demo(cwd=empty)
    assert "standard library" in printed
    assert re.search(r"crashed +SIGKILL", printed)
    assert len(re.findall(r"✓ read ", printed)) == 8
    assert printed.count("✓ the same 10 numbers") == 1
    assert "1 that was cut off and begun again" in printed
    assert printed.rstrip().endswith("pip install '.[lab]'\n  pi-workflows-nb lab")
    assert (list(empty.iterdir()), list(temporary.iterdir())) == ([], [])
    assert not state_folder.exists()


def test_in_a_repository_it_reads_the_history_and_can_keep_the_file(tmp_path, temporary):
    repository = make_repository(tmp_path / "repository")
    printed = demo("--yes", "--database", "../kept.sqlite", cwd=repository)
    assert "Which files of this repository" in printed
    assert re.search(r"often\.txt +4 ", printed)
    with pw.open_state(tmp_path / "kept.sqlite") as state:
        assert sorted(state.runs()["workflow"]) == ["quickstart", "quickstart", "survivor"]
        assert state.runners()["status"].tolist().count("crashed") == 1
        assert state.verify().empty


def test_a_person_is_asked(empty, temporary):
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen([*PROGRAM, "demo"], cwd=empty, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    screen = b""
    answered = False
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            screen += os.read(keyboard, 65536)
        except OSError:  # what Linux says when nobody has the other end open any more
            break
        if not answered and b"[10]" in screen:
            os.write(keyboard, b"none\n3\n")
            answered = True
    os.close(keyboard)
    assert process.wait(30) == 0
    assert b"is not a valid integer" in screen
    assert b"the same 3 numbers" in screen


def test_an_interrupt_ends_it_with_one_line_and_nothing_left(empty, temporary):
    process = subprocess.Popen([*PROGRAM, "demo"], cwd=empty, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if "✓ read" in line.decode():
            break
    process.send_signal(2)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.decode().strip()) == (1, "pi-workflows-nb: stopped")
    assert list(temporary.iterdir()) == []
