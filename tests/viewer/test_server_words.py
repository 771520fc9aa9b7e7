"""`server start | status | stop | run`, `runs` and `view`: what they do, what they print, and how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

import pi_workflows_nb as pw

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


@pytest.fixture
def call(state_file, tmp_path):
    """Call the command line on the state file of the test, piped."""

    def called(*words):
        return subprocess.run(
            [*PROGRAM, *words, "--database", str(state_file)], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return called


@pytest.fixture
def on_terminal(state_file, tmp_path):
    """Call the command line on a terminal; gives its status and all that the terminal got."""

    def called(*words, meanwhile=lambda: None):
        ours, its = pty.openpty()
        try:
            process = subprocess.Popen(
                [*PROGRAM, *words, "--database", str(state_file)], cwd=tmp_path,
                stdin=its, stdout=its, stderr=its, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            )  # fmt: skip
        finally:
            os.close(its)
        said = b""
        try:
            while True:
                try:
                    chunk = os.read(ours, 65536)
                except OSError:
                    break
                said += chunk
                if b"running" in said:
                    meanwhile()
        finally:
            os.close(ours)
        return process.wait(), said.decode()

    return called


@pytest.fixture
def started(call):
    """A server in the background; stopped at the end, when the test has not done so."""
    result = call("server", "start")
    assert (result.returncode, result.stderr) == (0, "")
    yield json.loads(result.stdout)
    call("server", "stop")


def one_run(state_file, tmp_path):
    wf = pw.Workflow("short", start_at="only")

    @wf.compute
    def only(ctx):
        return 1

    with pw.start(database=state_file, project=tmp_path) as server:
        return server.run(wf).wait().id


def held_run(state_file, tmp_path, gate):
    wf = pw.Workflow("held", start_at="only")
    path = str(gate)

    @wf.compute
    def only(ctx):
        while not os.path.exists(path):
            time.sleep(0.01)

    server = pw.start(database=state_file, project=tmp_path)
    return server, server.run(wf)


def test_start_waits_until_it_serves_and_outlives_who_called_it(call, started):
    assert started["pid"] != os.getpid()
    status = call("server", "status")
    assert status.returncode == 0
    assert json.loads(status.stdout)["pid"] == started["pid"]


def test_a_second_start_finds_the_first(call, started):
    again = call("server", "start")
    assert (again.returncode, json.loads(again.stdout)["pid"]) == (0, started["pid"])


def test_stop_gives_the_file_back_and_says_so(call, started):
    stopped = call("server", "stop")
    assert (stopped.returncode, json.loads(stopped.stdout)) == (0, {"pid": started["pid"], "stopped": True})
    assert call("server", "status").returncode == 1


@pytest.mark.parametrize("word", ["status", "stop"])
def test_where_nobody_serves_it_is_one_line_and_status_1(word, call):
    result = call("server", word)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "server start" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_stays_attached_marks_its_lines_and_ends_cleanly(number, state_file, tmp_path):
    process = subprocess.Popen(
        [*PROGRAM, "server", "run", "--database", str(state_file)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    with process.stdout as said:
        first = said.readline()
        process.send_signal(number)
        lines = [first, *said]
    assert process.wait() == 0
    assert all(line.startswith("[server] ") for line in lines)
    assert str(process.pid) in lines[0]
    assert "stopped" in lines[-1]


def test_run_is_stopped_by_the_word_of_another(call, state_file, tmp_path):
    process = subprocess.Popen(
        [*PROGRAM, "server", "run", "--database", str(state_file)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    with process.stdout as said:
        said.readline()
        assert call("server", "stop").returncode == 0
        said.read()
    assert process.wait() == 0


def test_piped_runs_are_json_lines_with_and_without_a_server(call, state_file, tmp_path):
    run_id = one_run(state_file, tmp_path)
    (row,) = map(json.loads, call("runs").stdout.splitlines())
    assert (row["runId"], row["status"]) == (run_id, "completed")
    call("server", "start")
    try:
        (served,) = map(json.loads, call("runs").stdout.splitlines())
    finally:
        call("server", "stop")
    assert row.pop("controls") == [], "nobody is there to carry them out"
    assert served.pop("controls") == ["restart"]
    assert served == row


def test_on_a_terminal_runs_are_a_table(on_terminal, state_file, tmp_path):
    run_id = one_run(state_file, tmp_path)
    status, said = on_terminal("runs")
    assert (status, run_id in said, "completed" in said) == (0, True, True)
    assert "{" not in said


def test_view_once_shows_one_snapshot(call, state_file, tmp_path):
    run_id = one_run(state_file, tmp_path)
    for words in (("view", "--once"), ("view", run_id, "--once"), ("view", run_id)):
        result = call(*words)
        assert (result.returncode, result.stderr) == (0, "")
        assert run_id in result.stdout
        assert "completed" in result.stdout


def test_a_run_that_is_not_there_is_one_line_and_status_1(call, state_file, tmp_path):
    one_run(state_file, tmp_path)
    result = call("view", "nobody", "--once")
    assert (result.returncode, result.stdout) == (1, "")
    assert "nobody" in result.stderr


def test_a_file_that_is_not_there_is_one_line_and_status_1(call, state_file):
    result = call("runs")
    assert (result.returncode, result.stdout, state_file.exists()) == (1, "", False)
    assert len(result.stderr.splitlines()) == 1


def test_a_run_is_followed_until_it_ends(on_terminal, state_file, tmp_path):
    gate = tmp_path / "gate"
    server, run = held_run(state_file, tmp_path, gate)
    with server:
        status, said = on_terminal("view", run.id, meanwhile=gate.touch)
    assert status == 0
    assert "completed" in said


def test_a_server_that_stops_ends_the_view_of_a_run_with_status_1(on_terminal, state_file, tmp_path):
    server, run = held_run(state_file, tmp_path, tmp_path / "gate")
    with server:
        status, said = on_terminal("view", run.id, meanwhile=server.stop)
    assert status == 1
    assert "has stopped" in said
