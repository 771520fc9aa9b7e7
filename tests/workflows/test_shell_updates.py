"""Updates out of the lines of a command: real commands, real pipes."""

from __future__ import annotations

import os
import signal
import sys

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import UpdateError, WorkflowDefinitionError
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.shell_updates import MAX_LINE_BYTES, LineReader


def run(script, parse_line, *, streams=("stdout",), timeout=30):
    wf = pw.Workflow("shell", start_at="node")
    wf.shell(
        "node",
        {"command": sys.executable, "args": ["-c", script]},
        effect=pw.manual_effect("x"),
        updates=pw.shell_updates(parse_line, streams=streams),
        timeout=timeout,
    )
    store = LocalStore()
    return WorkflowEngine(store=store).run(wf), store


def said(store):
    return [(kind, key, data) for _, kind, key, data in store.updates]


def line_of(line):
    return ("line", "all", {"text": line})


def test_lines_are_published_while_the_command_runs_and_its_output_stays_whole():
    script = (
        "import sys; print('one'); print(); print('tw\\u00f6'); print('err', file=sys.stderr); print('end', end='')"
    )
    result, store = run(script, line_of)
    assert said(store) == [line_of(text) for text in ("one", "tw\u00f6", "end")]
    assert result.output["stdout"] == "one\n\ntw\u00f6\nend"


def test_both_streams_many_at_once_and_none():
    def parse(line):
        return None if line == "no" else [line_of(line), ("count", line, {})]

    result, store = run(
        "import sys; print('no'); print('a'); sys.stdout.flush(); print('b', file=sys.stderr)",
        parse,
        streams=("stdout", "stderr"),
    )
    assert result.status == "completed"
    assert sorted(key for _, key, _ in said(store)) == ["a", "all", "all", "b"]


def test_a_carriage_return_ends_a_line_too():
    _, store = run("print('1%\\r2%\\r\\n3%')", line_of)
    assert said(store) == [line_of("1%"), line_of("2%"), line_of("3%")]


@pytest.mark.parametrize(
    ("script", "parse", "words"),
    [
        ("print('x' * 65537)", line_of, "line 1 of stdout has more than 65,536 bytes"),
        (
            "sys.stdout.buffer.write(b'ok\\n\\xff\\n')",
            line_of,
            "line 2 of stdout is not UTF-8",
        ),
        ("print('x')", int, "invalid literal for int"),
        ("print('x')", lambda line: {"no": 1}, "parse_line gave {'no': 1}; give None, one (type, key, data)"),
        ("print('x')", lambda line: ("P", "k", {}), "'P' cannot be a type"),
    ],
)
def test_what_cannot_be_read_ends_the_command_and_fails_the_node(script, parse, words):
    result, store = run(f"import sys, time\n{script}\nsys.stdout.flush()\ntime.sleep(600)", parse)
    assert result.status == "failed"
    assert words in result.error
    assert [effect.status for effect in store.effects.values()] == ["ambiguous"]


def test_too_many_updates_end_the_command():
    result, store = run("for n in range(500): print(n)", line_of)
    assert "too many updates" in result.error
    assert 100 <= len(store.updates) < 500


def test_async_parsers_are_called_as_well():
    async def parse(line):
        return line_of(line)

    assert said(run("print('x')", parse)[1]) == [line_of("x")]


def test_what_a_left_behind_process_holds_open_does_not_hide_the_last_line():
    script = "import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\nprint('last', end='')"
    found = said(run(script, line_of)[1])
    os.kill(int(found[0][2]["text"]), signal.SIGKILL)
    assert found[1:] == [line_of("last")]


def test_lines_come_out_the_same_however_they_are_cut():
    text = b"a\nbb\r\nccc\rdddd\n\n" + b"e" * MAX_LINE_BYTES
    for size in (1, 2, 3, 7, len(text)):
        lines = []
        reader = LineReader("stdout", lines.append)
        for start in range(0, len(text), size):
            reader.take(text[start : start + size])
        reader.take(b"")
        reader.take(b"")
        assert lines == ["a", "bb", "ccc", "dddd", "e" * MAX_LINE_BYTES]


def test_a_line_without_end_is_refused_before_it_fills_the_memory():
    reader = LineReader("stderr", lambda line: None)
    reader.take(b"x" * MAX_LINE_BYTES)
    with pytest.raises(UpdateError, match="line 1 of stderr"):
        reader.take(b"x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parse_line": 5}, "is not a function"),
        ({"parse_line": lambda: None}, "called with one argument"),
        ({"parse_line": line_of, "streams": ("stdin",)}, "'stdout', 'stderr', or both"),
        ({"parse_line": line_of, "streams": ()}, "'stdout', 'stderr', or both"),
    ],
)
def test_arguments_that_cannot_be(given, words):
    with pytest.raises(WorkflowDefinitionError, match=words):
        pw.shell_updates(**given)
    with pytest.raises(WorkflowDefinitionError, match=r"updates=.*write updates=pw.shell_updates"):
        pw.shell({"command": "true"}, effect=pw.manual_effect("x"), updates=line_of)
