"""Settings in the engine alone: copies, routes that are taken again, scopes of mounts."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import ConflictError, NotFoundError, WorkflowInputError
from pi_workflows_nb.workflows.local_store import LocalStore

OPEN = pw.allow_settings_path("", read=["human"], add=["human"], replace=["human"])


def patch(value):
    return [{"op": "replace", "path": "/n", "value": value}]


def test_each_attempt_has_a_copy_of_its_own_from_when_it_began():
    store = LocalStore()
    wf = pw.Workflow("w", start_at="a", settings=pw.workflow_settings(initial={"n": 1}, paths=[OPEN]))

    def first(ctx):
        before = ctx.settings["n"]
        store.change_settings(patch(2))
        ctx.settings["n"] = 99
        return [before, ctx.settings_change_number, ctx.settings_scope_id.endswith(":$root:1")]

    wf.compute(first, name="a")
    wf.compute(lambda ctx: [ctx.outputs["a"], ctx.settings, ctx.settings_change_number], name="b")
    wf.edge("a", "b")
    assert pw.WorkflowEngine(store=store).run(wf).output == [[1, 0, True], {"n": 2}, 1]


def test_a_route_is_called_again_until_the_settings_stand():
    store, calls = LocalStore(), []
    wf = pw.Workflow("w", start_at="route", settings=pw.workflow_settings(initial={"n": 0}, paths=[OPEN]))

    @wf.settings_route
    def route(ctx):
        calls.append(ctx.settings["n"])
        if len(calls) < 4:
            store.change_settings(patch(len(calls)))
        return {"n": ctx.settings["n"]}

    wf.compute(lambda ctx: "here", name="three")
    wf.switch("route", "$.n", {3: "three"})
    result = pw.WorkflowEngine(store=store).run(wf)
    assert (result.status, result.output, calls) == ("completed", "here", [0, 1, 2, 3])
    assert [step["attemptNumber"] for step in result.steps] == [4, 1]


def test_a_route_without_settings_is_a_compute():
    wf = pw.Workflow("w", start_at="route")
    wf.settings_route(lambda ctx: [ctx.settings, ctx.settings_scope_id, ctx.settings_change_number], name="route")
    assert pw.WorkflowEngine().run(wf).output == [{}, None, 0]


def test_parse_makes_the_settings_and_refuses():
    def parse(value):
        return {"n": int(value["n"])}

    declared = pw.workflow_settings(initial=lambda given: {"n": given}, parse=parse, paths=[OPEN])
    wf = pw.Workflow("w", start_at="a", settings=declared)
    wf.compute(lambda ctx: ctx.settings, name="a")
    store = LocalStore()
    assert pw.WorkflowEngine(store=store).run(wf, "7").output == {"n": 7}
    with pytest.raises(WorkflowInputError, match="the settings is refused"):
        pw.WorkflowEngine().run(wf, "seven")
    with pytest.raises(ConflictError):
        store.change_settings(patch(1), expected=3)
    with pytest.raises(NotFoundError):
        store.change_settings(patch(1), mount="nobody")
    assert store.change_settings(patch("8"), expected=0) == 1


def test_settings_of_a_child_that_are_refused_end_the_run():
    def parse(value):
        raise ValueError("never")

    child = pw.Workflow("c", start_at="a", exits={"done": pw.exit("a")}, settings=pw.workflow_settings(initial={}))
    child.settings = pw.workflow_settings(initial={}, parse=parse)
    child.compute(lambda ctx: 1, name="a")
    result = pw.WorkflowEngine().run(pw.Workflow("p", start_at="c", includes={"c": pw.include(child)}))
    assert result.status == "failed"
    assert "include 'c': its settings" in result.error
    assert "never" in result.error
