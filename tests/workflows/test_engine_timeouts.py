"""Deadlines and cancellation: the engine stops waiting at once, whatever the code does."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pi_workflows_nb.workflows import calls
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect, manual_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(calls, "GRACE_SECONDS", 0.05)


def one(function, **given):
    wf = Workflow("one", start_at="node")
    wf.compute(name="node", **given)(function)
    wf.compute(name="recover")(lambda ctx: ctx.results["node"]["error"])
    wf.switch("node", "$result.outcome", {"ok": "recover", "timed_out": "recover", "failed": "recover"})
    return wf


def test_code_that_listens_is_stopped_and_its_thread_goes_on():
    threads = []

    def node(ctx):
        threads.append(threading.get_ident())
        assert ctx.cancelled.wait(10)

    wf = one(node, timeout=0.05)
    wf.compute(name="recover")(lambda ctx: [threading.get_ident(), ctx.cancelled.is_set()])
    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    assert (result.status, result.output) == ("completed", [threads[0], False])
    assert result.steps[0]["outcome"] == "timed_out"
    assert "did not end within its 0.05 s" in result.steps[0]["error"]
    assert not any(transition.abandoned for transition in store.transitions)
    started = store.transitions[0].started
    assert started.deadline_at == started.started_at + 50


def test_an_async_callback_is_cancelled():
    ended = []

    async def node(ctx):
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(True)

    result = WorkflowEngine().run(one(node, timeout=0.05))
    assert ended == [True]
    assert result.steps[0]["outcome"] == "timed_out"


def test_code_that_does_not_stop_is_left_behind(short_grace):
    release = threading.Event()
    threads = []

    def node(ctx):
        threads.append(threading.get_ident())
        release.wait(10)

    wf = one(node, timeout=0.05)
    wf.compute(name="recover")(lambda ctx: threads.append(threading.get_ident()))
    store = LocalStore()
    began = time.monotonic()
    result = WorkflowEngine(store=store).run(wf)
    assert time.monotonic() - began < 2
    release.set()
    assert result.status == "completed"
    assert threads[0] != threads[1]
    left = next(transition for transition in store.transitions if transition.abandoned)
    assert (left.finished.outcome, left.started, left.end) == ("timed_out", None, None)
    assert "left behind" in left.finished.error


def test_what_was_left_behind_and_ends_the_run_is_one_proposal(short_grace):
    release = threading.Event()
    wf = Workflow("one", start_at="node")
    wf.compute(name="node", timeout=0.05)(lambda ctx: release.wait(10) and None)
    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    release.set()
    assert result.status == "timed_out"
    last = store.transitions[-1]
    assert (last.abandoned, last.finished.outcome, last.end.status) == (True, "timed_out", "timed_out")


def test_a_short_deadline_after_a_long_one_is_kept():
    wf = Workflow("mixed", start_at="long")
    wf.compute(name="long")(lambda ctx: time.sleep(0.05))
    wf.compute(name="short", timeout=0.05)(lambda ctx: ctx.cancelled.wait(10) and None)
    wf.edge("long", "short")
    began = time.monotonic()
    assert WorkflowEngine().run(wf).status == "timed_out"
    assert time.monotonic() - began < 2


def test_a_result_that_came_too_late_does_not_count():
    def node(ctx):
        ctx.cancelled.wait(10)
        return "late"

    result = WorkflowEngine().run(one(node, timeout=0.05))
    assert result.steps[0]["outcome"] == "timed_out"
    assert result.steps[0]["output"] is None


def test_none_means_no_limit_and_a_function_may_say():
    store = LocalStore()
    WorkflowEngine(store=store).run(one(lambda ctx: 1, timeout=None))
    assert store.transitions[0].started.deadline_at is None
    store = LocalStore()
    wf = one(lambda ctx: ctx.cancelled.wait(10) and None, timeout=lambda ctx: ctx.input["seconds"])
    result = WorkflowEngine(store=store).run(wf, {"seconds": 0.05})
    assert result.steps[0]["outcome"] == "timed_out"

    async def seconds(ctx):
        return None

    assert WorkflowEngine().run(one(lambda ctx: 1, timeout=seconds)).status == "completed"


@pytest.mark.parametrize("answer", [0, -1, "10", True, float("inf"), float("nan")])
def test_a_timeout_function_that_gives_nonsense_fails_its_node(answer):
    called = []
    result = WorkflowEngine().run(one(called.append, timeout=lambda ctx: answer))
    assert result.steps[0]["outcome"] == "failed"
    assert "timeout function" in result.output
    assert called == []


def test_a_timeout_function_that_raises_shows_its_line():
    def seconds(ctx):
        return 1 / 0

    error = WorkflowEngine().run(one(lambda ctx: 1, timeout=seconds)).output
    assert error.startswith("ZeroDivisionError")
    assert "in seconds" in error


def test_the_effect_of_a_node_that_ran_out_of_time():
    for declared, stays in ((idempotent_effect("x"), "ambiguous"), (manual_effect("x"), "ambiguous")):
        wf = Workflow("one", start_at="node")
        wf.action(name="node", effect=declared, timeout=0.05)(lambda ctx: ctx.cancelled.wait(10) and 1 / 0)
        store = LocalStore()
        assert WorkflowEngine(store=store).run(wf).status == "timed_out"
        assert store.transitions[-1].finished.effect.outcome == stays


def test_cancel_gives_the_node_up_and_ends_the_run():
    engine = WorkflowEngine()
    began = threading.Event()

    def node(ctx):
        began.set()
        ctx.cancelled.wait(10)

    def cancel():
        began.wait(10)
        engine.cancel()

    helper = threading.Thread(target=cancel)
    helper.start()
    result = engine.run(one(node))
    helper.join()
    assert result.status == "cancelled"
    assert [step["outcome"] for step in result.steps] == ["cancelled"]


def test_an_interrupt_of_the_caller_gets_through(monkeypatch):
    import signal

    stopped = threading.Event()
    main = threading.main_thread().ident

    def node(ctx):
        signal.pthread_kill(main, signal.SIGINT)
        ctx.cancelled.wait(10)
        stopped.set()

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            WorkflowEngine().run(one(node))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert stopped.wait(5)


def test_a_deadline_beyond_all_dates_is_still_one():
    store = LocalStore()
    assert WorkflowEngine(store=store).run(one(lambda ctx: 1, timeout=1e300)).status == "completed"
    assert store.transitions[0].started.deadline_at < 2**53


def test_tasks_that_async_code_left_running_end_with_the_run():
    ended = []

    async def background():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def node(ctx):
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    kept = []
    assert WorkflowEngine().run(one(node)).status == "completed"
    assert ended == [True]
