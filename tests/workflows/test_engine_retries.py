"""Tries: each is an attempt, all together are one step, and nothing runs between them."""

from __future__ import annotations

import time

import pytest

from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect, manual_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.retries import retry

QUICK = (0.01, 2, 0.02)


def failing(times, error=ConnectionError):
    calls = []

    def node(ctx):
        calls.append(ctx.attempt_number)
        if len(calls) <= times:
            raise error(f"try {len(calls)}")
        return calls

    return node


def test_tries_are_attempts_of_one_step():
    wf = Workflow("flaky", start_at="node")
    wf.compute(name="node", retries=retry(3, backoff=QUICK, on=(ConnectionError,)))(failing(2))
    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    assert (result.status, result.output, len(result.steps)) == ("completed", [1, 2, 3], 1)
    ends = [t.finished for t in store.transitions if t.finished]
    assert [(end.outcome, end.step) for end in ends] == [("failed", False), ("failed", False), ("ok", True)]
    # The end of a failed try stands alone, so that nothing counts as started while the pause lasts.
    assert [t.started is None for t in store.transitions if t.finished] == [True, True, True]
    starts = [t.started.started_at for t in store.transitions if t.started]
    assert starts[1] - ends[0].finished_at >= 10
    assert starts[2] - ends[1].finished_at >= 20


@pytest.mark.parametrize(("error", "tries"), [(ConnectionError, 3), (ValueError, 1), (SystemExit, 1)])
def test_only_the_named_errors_are_tried_again(error, tries):
    wf = Workflow("flaky", start_at="node")
    node = failing(9, error)
    wf.compute(name="node", retries=retry(3, backoff=QUICK, on=(ConnectionError,)))(node)
    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    assert result.status == "failed"
    assert sum(t.finished is not None for t in store.transitions) == tries
    assert [t.finished.step for t in store.transitions if t.finished][-1] is True


def test_a_timeout_counts_as_timeout_error():
    wf = Workflow("slow", start_at="node")
    calls = []

    @wf.compute(name="node", timeout=0.05, retries=retry(2, backoff=QUICK, on=TimeoutError))
    def node(ctx):
        calls.append(1)
        if len(calls) == 1:
            ctx.cancelled.wait(5)
        return "second"

    store = LocalStore()
    result = WorkflowEngine(store=store).run(wf)
    assert result.output == "second"
    assert [t.started.retry_on_timeout for t in store.transitions if t.started] == [True, False]
    assert store.transitions[1].finished.outcome == "timed_out"


def test_a_restart_knows_the_tries_that_were_used_and_waits_the_rest_of_the_pause():
    wf = Workflow("flaky", start_at="node")
    wf.compute(name="node", retries=retry(3, backoff=(0.2, 1, 1)))(failing(9))
    store = LocalStore()
    store.begin(wf, None)
    store._state["pending"] = {"nodeId": "node", "tries": 1, "failedAt": time.time_ns() // 1_000_000}
    store._state["attemptCounts"] = {"node": 1}
    began = time.monotonic()
    result = WorkflowEngine(store=store).run(wf, resume=True)
    took = time.monotonic() - began
    assert result.status == "failed"
    assert result.steps[0]["attemptNumber"] == 3
    assert 0.35 < took < 1.5
    # A clock that was set back meanwhile does not hold it for longer than the pause.
    store._state["pending"] = {"nodeId": "node", "tries": 2, "failedAt": time.time_ns() // 1_000_000 + 3_600_000}
    store._state["steps"].clear()
    began = time.monotonic()
    WorkflowEngine(store=store).run(wf, resume=True)
    assert time.monotonic() - began < 1.5


def test_an_idempotent_effect_keeps_its_key_over_its_tries():
    wf = Workflow("act", start_at="node")
    seen = []

    @wf.action(effect=idempotent_effect("ledger.add"), retries=retry(3, backoff=QUICK))
    def node(ctx):
        seen.append((ctx.effect.idempotency_key, ctx.effect.attempt_number))
        if len(seen) < 3:
            raise OSError
        return "done"

    store = LocalStore()
    assert WorkflowEngine(store=store).run(wf).output == "done"
    assert len({key for key, _ in seen}) == 1
    assert [number for _, number in seen] == [1, 2, 3]
    assert [t.finished.effect.outcome for t in store.transitions if t.finished] == ["retry", "retry", "applied"]


def test_a_manual_effect_that_may_have_happened_is_not_tried_again():
    wf = Workflow("act", start_at="node")
    calls = []

    @wf.action(effect=manual_effect("mail.send"), retries=retry(3, backoff=QUICK))
    def node(ctx):
        calls.append(1)
        raise OSError("connection lost")

    store = LocalStore()
    assert WorkflowEngine(store=store).run(wf).status == "failed"
    assert calls == [1]
    assert store.transitions[-1].finished.effect.outcome == "ambiguous"


def test_a_manual_effect_whose_request_could_not_be_made_may_be_tried_again():
    wf = Workflow("act", start_at="node")
    tries = []

    def request(ctx):
        tries.append(1)
        if len(tries) == 1:
            raise OSError
        return {"to": "x"}

    wf.action(name="node", effect=manual_effect("mail.send", request=request), retries=retry(2, backoff=QUICK))(
        lambda ctx: "sent"
    )
    store = LocalStore()
    assert WorkflowEngine(store=store).run(wf).output == "sent"
    assert next(t.finished.effect for t in store.transitions if t.finished) is None
