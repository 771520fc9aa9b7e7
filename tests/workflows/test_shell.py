"""Commands are real here: real processes, real pipes, real signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from pi_workflows_nb.wire.errors import CommandFailed, WorkflowDefinitionError
from pi_workflows_nb.workflows.shell import check_command, run_shell

NEVER = threading.Event()


def run(command, *args, limit=20.0, cancelled=NEVER, on_start=None, **more):
    spec = {"command": command, "args": list(args), **more}
    return run_shell(spec, timeout=limit, cancelled=cancelled, on_start=on_start)


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def test_result_of_a_command():
    pids = []
    result = run("sh", "-c", "printf 'one\\n'; printf two >&2", on_start=pids.append)
    duration = result.pop("durationMs")
    assert result == {
        "stdout": "one\n",
        "stderr": "two",
        "exitCode": 0,
        "signal": None,
        "stdoutTruncated": False,
        "stderrTruncated": False,
    }
    assert 0 <= duration < 20_000
    assert len(pids) == 1


def test_command_stays_in_the_group_of_its_caller():
    assert run("sh", "-c", "ps -o pgid= -p $$")["stdout"].strip() == str(os.getpgrp())


def test_arguments_folder_environment_and_stdin(tmp_path):
    result = run(
        "sh",
        "-c",
        'pwd; echo "$0 $1 $GREETING"; cat',
        1,
        Path("two"),
        cwd=tmp_path,
        env={"GREETING": "hi"},
        stdin="né\n",
    )
    assert result["stdout"] == f"{tmp_path.resolve()}\n1 two hi\nné\n"


def test_large_input_to_a_command_that_answers_as_it_reads():
    text = "0123456789abcdef" * 40_000
    assert run("cat", stdin=text)["stdout"] == text


def test_command_that_does_not_read_its_input():
    assert run("true", stdin="x" * 1_000_000)["exitCode"] == 0


def test_both_streams_are_read_at_once_and_capped():
    flood = "import sys\nfor _ in range(3000): sys.stdout.write('o' * 1000); sys.stderr.write('e' * 1000)"
    result = run(sys.executable, "-c", flood)
    assert result["stdout"] == "o" * 1_000_000
    assert result["stderr"] == "e" * 1_000_000
    assert result["stdoutTruncated"]
    assert result["stderrTruncated"]


def test_cap_counts_characters_and_is_exact():
    assert run("printf", "äöü", max_output_chars=3)["stdoutTruncated"] is False
    cut = run("printf", "äöü", max_output_chars=2)
    assert (cut["stdout"], cut["stdoutTruncated"]) == ("äö", True)


def test_bytes_that_are_not_utf8_are_replaced():
    assert run("printf", r"a\377b\303")["stdout"] == "a\ufffdb\ufffd"


def test_nonzero_exit_fails_and_says_why():
    with pytest.raises(CommandFailed, match=r"exit code 3.*allow_nonzero_exit=True.*no such luck") as caught:
        run("sh", "-c", "echo no such luck >&2; exit 3")
    assert caught.value.result["exitCode"] == 3
    assert run("sh", "-c", "exit 3", allow_nonzero_exit=True)["exitCode"] == 3


def test_end_by_a_signal():
    result = run("sh", "-c", "kill -KILL $$", allow_nonzero_exit=True)
    assert (result["exitCode"], result["signal"]) == (None, "SIGKILL")
    with pytest.raises(CommandFailed, match="was ended by SIGKILL"):
        run("sh", "-c", "kill -KILL $$")


@pytest.mark.parametrize(("of_node", "of_command"), [(0.2, None), (None, 0.2), (30, 0.2)])
def test_timeout_ends_the_command(of_node, of_command):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"`sleep 60` took longer than 0\.2 s"):
        run("sleep", "60", limit=of_node, timeout=of_command)
    assert time.monotonic() - began < 1.5


def test_cancellation_ends_the_command_promptly():
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    began = time.monotonic()
    with pytest.raises(CommandFailed, match="the node is cancelled"):
        run("sleep", "60", cancelled=cancelled)
    assert time.monotonic() - began < 1.5
    with pytest.raises(CommandFailed, match="was not started"):
        run("sleep", "60", cancelled=cancelled)


def test_nothing_survives_a_timeout(tmp_path):
    # A child that ignores SIGTERM, a grandchild whose parent is gone, and one in a session of its own.
    pids = tmp_path / "pids"
    script = f"""
        trap '' TERM
        (sleep 60 & echo $! >> {pids})
        setsid sh -c 'echo $$ >> {pids}; exec sleep 60' &
        echo $$ >> {pids}
        sleep 60
        sleep 60
    """
    with pytest.raises(TimeoutError):
        run("sh", "-c", script, timeout=0.5)
    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 3
    assert not [pid for pid in started if lives(pid)]


def test_process_in_the_background_does_not_hold_the_node_back(tmp_path):
    began = time.monotonic()
    result = run("sh", "-c", "sleep 30 & echo $!")
    assert time.monotonic() - began < 5
    os.kill(int(result["stdout"]), signal.SIGKILL)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ls", r"give a dict"),
        ({}, r"give the program to run"),
        ({"command": "ls", "arg": []}, r"no key 'arg'; its keys are command, args"),
        ({"command": "ls", "args": "-l"}, r"one entry per argument"),
        ({"command": "ls", "args": [None]}, r"None in args is a NoneType"),
        ({"command": "ls", "env": {"A": 1}}, r"from text to text"),
        ({"command": "ls", "timeout": 0}, r"greater than 0"),
        ({"command": "ls", "allow_nonzero_exit": 1}, r"True or False"),
        ({"command": "ls", "stdin": b"x"}, r"stdin is a bytes"),
        ({"command": "ls", "max_output_chars": -1}, r"whole number"),
    ],
)
def test_mistakes_in_a_command_are_named(spec, said):
    with pytest.raises(WorkflowDefinitionError, match=said) as caught:
        check_command(spec, "shell node 'log'")
    assert str(caught.value).startswith("shell node 'log': ")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"command": "git log"}, r"no program 'git log'\. Give the program alone"),
        ({"command": "no-such-program"}, r"'no-such-program' on the PATH"),
        ({"command": "ls", "cwd": "/no/such/folder"}, r"cwd\) '/no/such/folder' does not exist"),
    ],
)
def test_commands_that_cannot_start(spec, said):
    with pytest.raises(CommandFailed, match=said):
        run_shell(spec, timeout=None, cancelled=NEVER)
