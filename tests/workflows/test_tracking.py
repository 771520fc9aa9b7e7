"""`ctx.track`: what a loop says about itself, in sync and async code."""

from __future__ import annotations

import pytest

from pi_workflows_nb.workflows import tracking
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.progress import PROGRESS


def acting(function):
    wf = Workflow("act", start_at="node")
    wf.action(name="node", effect=idempotent_effect("x"))(function)
    return wf


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(tracking, "monotonic", lambda: now[0])
    return now


def run(function):
    store = LocalStore()
    result = WorkflowEngine(store=store).run(acting(function))
    return result, [(key, data) for _, _, key, data in store.updates]


def test_it_tells_the_start_the_end_and_once_a_second_in_between(clock):
    def node(ctx):
        seen = []
        for row in ctx.track(list("abcdef"), label="The rows", unit="letters"):
            seen.append(row)
            clock[0] += 0.4
        return seen

    result, updates = run(node)
    assert result.output == list("abcdef")
    assert {key for key, _ in updates} == {"The-rows"}
    assert [(data["status"], data["completed"]) for _, data in updates] == [
        ("running", 0), ("running", 3), ("running", 6), ("completed", 6),
    ]  # fmt: skip
    assert updates[1][1] == {
        "schema": PROGRESS, "status": "running", "completed": 3, "total": 6, "unit": "letters", "label": "The rows",
    }  # fmt: skip


def test_what_has_no_length_has_no_total_unless_it_is_given(clock):
    def node(ctx):
        return [sum(ctx.track(iter([1, 2]))), sum(ctx.track((n for n in (3, 4)), total=2, key="mine"))]

    result, updates = run(node)
    assert result.output == [3, 7]
    assert [(key, data.get("total")) for key, data in updates] == [("track", None)] * 2 + [("mine", 2)] * 2


def test_async_code_goes_through_plain_and_async_rows(clock):
    async def rows():
        yield 1
        clock[0] += 2
        yield 2

    async def node(ctx):
        return [row async for row in ctx.track(rows(), key="a")] + [row async for row in ctx.track([3], key="b")]

    result, updates = run(node)
    assert result.output == [1, 2, 3]
    assert [(key, data["status"], data["completed"]) for key, data in updates] == [
        ("a", "running", 0), ("a", "running", 2), ("a", "completed", 2), ("b", "running", 0), ("b", "completed", 1),
    ]  # fmt: skip


def test_rows_that_break_are_told_as_failed(clock):
    def rows():
        yield 1
        raise OSError("the disk")

    async def broken():
        yield 1
        raise OSError("the disk")

    def plain(ctx):
        for _ in ctx.track(rows()):
            pass

    async def waiting(ctx):
        async for _ in ctx.track(broken()):
            pass

    for node in (plain, waiting):
        result, updates = run(node)
        assert "OSError: the disk" in result.error
        assert [data["status"] for _, data in updates] == ["running", "failed"]


def test_a_loop_that_is_left_early_says_nothing_more(clock):
    def node(ctx):
        for row in ctx.track(range(10)):
            if row == 3:
                return row
        raise AssertionError

    result, updates = run(node)
    assert result.output == 3
    assert [data["status"] for _, data in updates] == ["running"]


def test_a_plain_loop_in_async_code_is_told_how_to_be_written():
    async def node(ctx):
        for _ in ctx.track([1]):
            pass

    result, updates = run(node)
    assert "write `async for row in ctx.track(rows)`" in result.error
    assert updates == []


@pytest.mark.parametrize(
    ("label", "key"), [("--- é ü", "track"), ("x" * 300, "x" * 128), ("Dateien (neu)!", "Dateien-neu-")]
)
def test_any_label_makes_a_key(clock, label, key):
    _, updates = run(lambda ctx: list(ctx.track([1], label=label)))
    assert {found for found, _ in updates} == {key}
    assert updates[0][1]["label"] == label[:200]
