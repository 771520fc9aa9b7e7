"""Mistyped words are one line and exit status 2; the help teaches."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


def call(*words, cwd):
    return subprocess.run([*PROGRAM, *words], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dmeo"], "dmeo"),
        (["demo", "--now"], "--now"),
        (["--yes", "demo"], "--yes"),
        (["demo", "somewhere"], "somewhere"),
        (["demo", "--database"], "--database"),
        (["lab", "here", "there"], "there"),
        (["demo", "--", "--port"], "--"),
        (["view", "one", "two"], "two"),
        (["view", "--forever"], "--forever"),
        (["--once", "view"], "--once"),
        (["runs", "extra"], "extra"),
        (["runs", "--limit", "0"], "--limit"),
        (["resource-managers", "extra"], "extra"),
        (["resource-manager"], "MANAGER"),
        (["resource-manager", "box"], "KEY"),
        (["server"], "server"),
        (["server", "restart"], "restart"),
        (["server", "start", "now"], "now"),
        (["server", "--json", "status"], "--json"),
    ],
)
def test_a_mistyped_command_is_one_line_and_status_2(words, named, tmp_path):
    result = call(*words, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("pi-workflows-nb: ")
    assert named in line
    assert "--help" in line


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_the_help_says_what_there_is(words, tmp_path):
    result = call(*words, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    for expected in ("demo", "lab", "pw.start()"):
        assert expected in result.stdout


@pytest.mark.parametrize(
    "word", ["demo", "lab", "view", "runs", "resource-managers", "resource-manager", "server", "state"]
)
def test_each_word_has_its_help(word, tmp_path):
    result = call(word, "--help", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"pi-workflows-nb {word}" in result.stdout


def test_what_goes_wrong_is_one_line_and_status_1(tmp_path):
    (tmp_path / "notes.txt").write_text("not a state file, and it stays as it is\n" * 100)
    result = call("demo", "--database", "notes.txt", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "notes.txt" in result.stderr
    assert (tmp_path / "notes.txt").read_text().startswith("not a state file")


def test_the_version_can_be_asked_for(tmp_path):
    result = call("--version", cwd=tmp_path)
    assert result.returncode == 0
    assert "pi-workflows-nb" in result.stdout
