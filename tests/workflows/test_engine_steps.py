"""The walk: what callbacks see, where the run goes, and how it ends."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.nodes import checkpoint


def run(workflow, value=None, store=None, **given):
    return WorkflowEngine(store=store or LocalStore(), **given).run(workflow, value)


def test_outputs_flow_from_node_to_node():
    wf = Workflow("sum", start_at="double")

    @wf.compute
    def double(ctx):
        return {"n": ctx.input["n"] * 2}

    @wf.compute
    async def add(ctx):
        return ctx.outputs["double"]["n"] + 1

    wf.edge("double", "add")
    result = run(wf, {"n": 20})
    assert (result.status, result.output, result.error) == ("completed", 41, None)
    assert [(step["index"], step["nodeId"], step["outcome"]) for step in result.steps] == [
        (0, "double", "ok"),
        (1, "add", "ok"),
    ]


def test_one_proposal_carries_an_end_and_the_next_start():
    wf = Workflow("pair", start_at="a")
    wf.compute(name="a")(lambda ctx: 1)
    wf.compute(name="b")(lambda ctx: 2)
    wf.edge("a", "b")
    store = LocalStore()
    run(wf, store=store)
    said = [
        (
            transition.finished and transition.finished.node_id,
            transition.started and transition.started.node_id,
            transition.end and transition.end.status,
        )
        for transition in store.transitions
    ]
    assert said == [(None, "a", None), ("a", "b", None), ("b", None, "completed")]


def test_a_callback_may_do_to_its_values_what_it_likes():
    wf = Workflow("copies", start_at="make")
    seen = []

    @wf.compute
    def make(ctx):
        ctx.input["n"] = "gone"
        return {"list": [1]}

    @wf.compute
    def spoil(ctx):
        ctx.outputs["make"]["list"].append(2)
        ctx.outputs.clear()
        ctx.results["make"]["output"] = None

    @wf.compute
    def look(ctx):
        seen.append((ctx.input, ctx.outputs["make"], ctx.results["make"]["output"], ctx.state["outputs"]["make"]))

    wf.edge("make", "spoil")
    wf.edge("spoil", "look")
    assert run(wf, {"n": 1}).status == "completed"
    assert seen == [({"n": 1}, {"list": [1]}, {"list": [1]}, {"list": [1]})]


def test_a_later_visit_that_fails_takes_the_output_away():
    wf = Workflow("twice", start_at="work")
    seen = []

    @wf.compute
    def work(ctx):
        if ctx.results:
            raise RuntimeError("second visit")
        return "first"

    wf.switch("work", "$result.outcome", {"ok": "look", "failed": "look"})
    wf.switch("look", "$.again", {"true": "work", "false": "end"})
    wf.compute(name="end")(lambda ctx: dict(ctx.outputs))
    wf.compute(name="look")(lambda ctx: seen.append(ctx.outputs) or {"again": len(seen) < 2})
    result = run(wf)
    assert seen == [{"work": "first"}, {"look": {"again": True}}]
    assert result.output == {"look": {"again": False}}


def test_a_failure_without_a_way_on_ends_the_run():
    wf = Workflow("broken", start_at="work")

    @wf.compute
    def work(ctx):
        raise KeyError("nothing there")

    wf.compute(name="never")(lambda ctx: None)
    wf.edge("work", "never")
    result = run(wf)
    assert result.status == "failed"
    assert result.output is None
    assert result.error == result.steps[0]["error"]
    assert result.error.startswith("KeyError: 'nothing there'\n")


def test_a_value_without_a_case_fails_the_run_but_not_the_node():
    wf = Workflow("lost", start_at="pick")
    wf.compute(name="pick")(lambda ctx: {"route": "purple"})
    wf.compute(name="red")(lambda ctx: None)
    wf.switch("pick", "$.route", {"red": "red"})
    result = run(wf)
    assert result.status == "failed"
    assert "purple" in result.error
    assert "'red'" in result.error
    assert result.steps[0]["outcome"] == "ok"


def test_max_steps_holds_and_says_so():
    wf = Workflow("loop", start_at="again", max_steps=7)
    wf.compute(name="again")(lambda ctx: len(ctx.state["steps"]))
    wf.edge("again", "again")
    result = run(wf)
    assert result.status == "failed"
    assert len(result.steps) == 7
    assert "max_steps=7" in result.error


def test_a_checkpoint_waits_and_its_answer_goes_on():
    wf = Workflow("ask", start_at="check")
    wf.checkpoint(name="check")(lambda ctx: {"question": "ok?"})
    wf.compute(name="after")(lambda ctx: ctx.outputs["check"])
    wf.edge("check", "after")
    store = LocalStore()
    result = run(wf, store=store)
    assert (result.status, result.detail, result.output) == ("waiting", "check", {"question": "ok?"})
    last = store.transitions[-1]
    assert (last.finished.outcome, last.end.status, last.end.detail) == ("ok", "waiting", "check")
    store.answer("yes")
    again = WorkflowEngine(store=store).run(wf, resume=True)
    assert (again.status, again.output, len(again.steps)) == ("completed", "yes", 2)


def test_a_checkpoint_without_a_function_asks_with_nothing():
    wf = Workflow("ask", start_at="check", nodes={"check": checkpoint()})
    result = run(wf)
    assert (result.status, result.output) == ("waiting", None)


def test_a_definition_that_cannot_run_starts_nothing():
    wf = Workflow("broken", start_at="missing")
    wf.compute(name="a")(lambda ctx: None)
    with pytest.raises(WorkflowDefinitionError):
        run(wf)


def test_callbacks_see_where_they_are():
    wf = Workflow("here", start_at="where")
    wf.compute(name="where")(lambda ctx: [ctx.node_id, ctx.attempt_number, ctx.run_id.split("-")[1], ctx.settings])
    assert run(wf).output == ["where", 1, "here", {}]
