"""What a failing node leaves behind: a text in which somebody who wrote a cell finds the line."""

from __future__ import annotations

import asyncio
import linecache

import pytest

from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.tracebacks import error_text


def outcome(function):
    wf = Workflow("one", start_at="node")
    wf.compute(name="node")(function)
    result = WorkflowEngine().run(wf)
    assert result.status == "failed"
    assert result.steps[0]["outcome"] == "failed"
    return result.error


def test_the_text_shows_the_lines_of_the_cell_and_nothing_of_ours():
    text = "def helper(x):\n    return 1 / x\n\ndef node(ctx):\n    return helper(0)\n"
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(keepends=True), "<cell 7>")
    space = {}
    exec(compile(text, "<cell 7>", "exec"), space)
    lines = outcome(space["node"]).splitlines()
    assert lines[:2] == ["ZeroDivisionError: division by zero", "Traceback (most recent call last):"]
    assert [line.strip() for line in lines[2:] if "^" not in line] == [
        'File "<cell 7>", line 5, in node',
        "return helper(0)",
        'File "<cell 7>", line 2, in helper',
        "return 1 / x",
    ]


def test_libraries_are_named_only_where_the_error_came_out_of_them():
    async def node(ctx):
        await asyncio.sleep(0)
        return __import__("json").loads("{")

    text = outcome(node)
    assert text.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert "base_events" not in text
    assert "workflows/calls.py" not in text
    assert text.count("  File ") == 2


def test_causes_are_told():
    def node(ctx):
        try:
            int("x")
        except ValueError as error:
            raise RuntimeError("outer") from error

    text = outcome(node)
    assert text.startswith("RuntimeError: outer\n")
    assert "caused by: ValueError: invalid literal" in text


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_whatever_a_callback_raises_is_the_nodes_failure(error):
    def node(ctx):
        raise error

    async def async_node(ctx):
        raise error

    assert type(error).__name__ in outcome(node)
    assert type(error).__name__ in outcome(async_node)


def test_an_error_that_cannot_be_told_is_told_all_the_same():
    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError

    def node(ctx):
        raise Hostile

    assert "Hostile" in outcome(node)


def test_a_value_that_is_not_json_names_its_place():
    text = outcome(lambda ctx: {"rows": [1, {"when": object()}]})
    assert text.startswith("NotJsonError: $.rows[1].when")
    assert "ctx.save" in text
    assert "nan" in outcome(lambda ctx: float("nan"))


def test_forgotten_awaits_and_yields_are_called_by_their_names():
    async def later():
        return 1

    def generator():
        yield 1

    async def async_generator():
        yield 1

    assert "returned a coroutine" in outcome(lambda ctx: later())
    assert "gave a generator" in outcome(lambda ctx: generator())
    assert "gave a generator" in outcome(lambda ctx: async_generator())


def test_long_texts_are_cut():
    def node(ctx):
        raise ValueError("😀" * 10_000)

    text = outcome(node)
    assert len(text.encode("utf-16-le")) // 2 <= 8192
    assert "in node" in text


def test_a_chain_that_bites_its_tail_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert error_text(first).count("ValueError") == 2
