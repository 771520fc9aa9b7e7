"""A run goes on from whatever its store holds: stopped after each proposal in turn, it ends the same."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import StoppedByServer, WorkflowDefinitionError
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.retries import retry


class Stopping(LocalStore):
    """Takes so many proposals and then claims that the run belongs to somebody else."""

    def __init__(self):
        super().__init__()
        self.left = -1

    def propose(self, transition):
        if self.left == 0:
            raise StoppedByServer("no longer yours")
        self.left -= 1
        super().propose(transition)


def workflow(ledger):
    wf = Workflow("path", start_at="first")
    wf.compute(name="first")(lambda ctx: {"n": ctx.input})

    @wf.action(effect=idempotent_effect("ledger.add"), retries=retry(2, backoff=(0, 1, 0)))
    def write(ctx):
        ledger.add(ctx.effect.idempotency_key)
        if ctx.attempt_number == 1:
            raise OSError("first try")
        return sorted(ctx.outputs)

    @wf.compute
    def count(ctx):
        return {"n": ctx.outputs.get("count", {"n": 0})["n"] + 1, "more": ctx.outputs.get("count") is None}

    wf.compute(name="last")(lambda ctx: [ctx.outputs["count"]["n"], ctx.outputs["write"], len(ctx.state["steps"])])
    wf.edge("first", "write")
    wf.edge("write", "count")
    wf.switch("count", "$.more", {"true": "count", "false": "last"})
    return wf


@pytest.mark.parametrize("stop", range(9))
def test_stopped_anywhere_it_ends_the_same(stop):
    ledger, store = set(), Stopping()
    wf = workflow(ledger)
    store.left = stop
    engine = WorkflowEngine(store=store)
    if stop < 8:
        with pytest.raises(StoppedByServer):
            engine.run(wf, 5)
    else:
        engine.run(wf, 5)
    store.left = -1
    result = WorkflowEngine(store=store).run(wf, resume=True)
    assert (result.status, result.output) == ("completed", [2, ["first"], 4])
    assert [step["nodeId"] for step in result.steps] == ["first", "write", "count", "count", "last"]
    assert [step["index"] for step in result.steps] == [0, 1, 2, 3, 4]
    assert len(ledger) == 1


def test_a_run_whose_node_is_gone_says_so():
    store = LocalStore()
    wf = Workflow("path", start_at="a")
    wf.compute(name="a")(lambda ctx: 1)
    store.begin(wf, None)
    store._state["pending"] = {"nodeId": "b", "tries": 0, "failedAt": None}
    with pytest.raises(WorkflowDefinitionError, match="'b'"):
        WorkflowEngine(store=store).run(wf, resume=True)


def test_an_end_that_was_committed_for_it_is_routed_from():
    """A server ends the attempt of a runner that holds the interpreter; the next generation takes the edge."""
    store = LocalStore()
    wf = Workflow("path", start_at="a")
    wf.compute(name="a")(lambda ctx: 1)
    wf.compute(name="b")(lambda ctx: ctx.results["a"]["outcome"])
    wf.switch("a", "$result.outcome", {"timed_out": "b"})
    store.begin(wf, None)
    step = {
        "index": 0,
        "nodeId": "a",
        "attemptId": "x",
        "attemptNumber": 1,
        "nodeType": "compute",
        "outcome": "timed_out",
        "output": None,
        "error": "too long",
        "startedAt": 1,
        "finishedAt": 2,
    }
    store._state["steps"].append(step)
    assert WorkflowEngine(store=store).run(wf, resume=True).output == "timed_out"
    wf.edges.clear()
    store._state["steps"][1:] = []
    result = WorkflowEngine(store=store).run(wf, resume=True)
    assert (result.status, result.error) == ("timed_out", "too long")


def test_a_fault_of_the_store_reaches_the_caller():
    class Broken(LocalStore):
        def propose(self, transition):
            raise OSError("disk")

    wf = Workflow("path", start_at="a")
    wf.compute(name="a")(lambda ctx: 1)
    with pytest.raises(OSError, match="disk"):
        WorkflowEngine(store=Broken()).run(wf)
