"""Updates of running nodes: in order with the proposals, within their limits, refused when the node is over."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pi_workflows_nb.wire.errors import UpdateError
from pi_workflows_nb.workflows import updates
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore


def acting(function):
    wf = Workflow("act", start_at="node")
    wf.action(name="node", effect=idempotent_effect("x"))(function)
    return wf


def test_sync_code_publishes_and_goes_on_when_it_is_stored():
    store = LocalStore()

    def node(ctx):
        ctx.publish_update("progress", "overall", {"n": 1})
        return len(store.updates)

    result = WorkflowEngine(store=store).run(acting(node))
    assert result.output == 1
    assert store.updates == [(result.steps[0]["attemptId"], "progress", "overall", {"n": 1})]


def test_async_code_awaits_it_and_threads_of_its_own_block():
    store = LocalStore()

    async def node(ctx):
        await ctx.publish_update("progress", "a", {})
        await asyncio.to_thread(ctx.publish_update, "progress", "b", {})
        with pytest.raises(UpdateError):
            await ctx.publish_update("progress", "a b", {})
        await asyncio.gather(*(ctx.publish_update("progress", str(n), {}) for n in range(5)))

    assert WorkflowEngine(store=store).run(acting(node)).status == "completed"
    assert [key for _, _, key, _ in store.updates] == ["a", "b", "0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("kind", "key", "data"),
    [
        ("Progress", "a", {}),
        ("p" * 65, "a", {}),
        ("progress", "", {}),
        ("progress", "a" * 129, {}),
        ("progress", "a", [1]),
        ("progress", "a", {"x": "y" * 70_000}),
        (1, "a", {}),
    ],
)
def test_what_cannot_be_published_is_refused_before_it_goes_anywhere(kind, key, data):
    store = LocalStore()
    result = WorkflowEngine(store=store).run(acting(lambda ctx: ctx.publish_update(kind, key, data)))
    assert result.status == "failed"
    assert result.error.startswith("UpdateError: publish_update:")
    assert store.updates == []


def test_a_burst_is_allowed_and_then_a_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(updates, "monotonic", lambda: now[0])
    limits = updates.UpdateLimits()
    for _ in range(100):
        limits.take("a", "b")
    with pytest.raises(UpdateError, match="20 a second"):
        limits.take("a", "b")
    now[0] += 0.1
    limits.take("a", "b")
    limits.take("a", "b")
    with pytest.raises(UpdateError):
        limits.take("a", "b")


def test_only_so_many_pairs(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(updates, "monotonic", lambda: now[0])
    limits = updates.UpdateLimits()
    for number in range(1024):
        now[0] += 1
        limits.take("a", str(number))
    now[0] += 1
    with pytest.raises(UpdateError, match=r"1,024"):
        limits.take("a", "one too many")
    limits.take("a", "7")


def test_compute_nodes_publish_nothing():
    wf = Workflow("plain", start_at="node")
    wf.compute(name="node")(lambda ctx: ctx.publish_update("a", "b", {}))
    assert "agents and actions publish updates" in WorkflowEngine().run(wf).error


def test_a_node_that_is_over_publishes_nothing_any_more():
    kept = []
    wf = acting(kept.append)
    wf.action(name="later", effect=idempotent_effect("y"))(lambda ctx: kept[0].publish_update("progress", "late", {}))
    wf.edge("node", "later")
    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    assert "has ended" in result.error
    assert store.updates == []


def test_after_the_deadline_nothing_is_accepted():
    said = []

    def node(ctx):
        ctx.cancelled.wait(10)
        try:
            ctx.publish_update("progress", "late", {})
        except Exception as error:
            said.append(str(error))

    wf = Workflow("act", start_at="node")
    wf.action(name="node", effect=idempotent_effect("x"), timeout=0.05)(node)
    store = LocalStore()
    assert WorkflowEngine(store=store).run(wf).status == "timed_out"
    assert "has ended" in said[0]
    assert store.updates == []


def test_after_the_run_nobody_waits_for_ever():
    kept, said = [], []
    WorkflowEngine().run(acting(kept.append))

    def late():
        try:
            kept[0].publish_update("progress", "late", {})
        except Exception as error:
            said.append(str(error))

    thread = threading.Thread(target=late)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert said
