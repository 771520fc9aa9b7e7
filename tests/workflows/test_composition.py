"""Workflows inside workflows, walked by the engine alone."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import NotFoundError, StoppedByServer, WorkflowDefinitionError
from pi_workflows_nb.workflows.compiled import compile_workflow
from pi_workflows_nb.workflows.finding import Discovered, Stored
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot

DOUBLER = """
import pi_workflows_nb as pw

wf = pw.Workflow("doubler", start_at="double", exits={"done": pw.exit("double")})
wf.compute(name="double")(lambda ctx: 2 * ctx.input)
"""


def adder(name="adder", **more):
    """A child that counts up until a limit: it is left as `low` or as `high`."""
    wf = pw.Workflow(name, start_at="add", exits={"low": pw.exit("small"), "high": pw.exit("large")}, **more)
    wf.compute(
        lambda ctx: {"n": ctx.input["n"] + 1, "big": ctx.input["n"] >= 2, "seen": sorted(ctx.outputs)}, name="add"
    )
    wf.compute(lambda ctx: ctx.outputs["add"]["n"], name="small")
    wf.compute(lambda ctx: ctx.outputs["add"]["n"], name="large")
    wf.switch("add", "$.big", {True: "large", False: "small"})
    return wf


def looping(**more):
    """A parent that enters the adder again until it is left as `high`."""
    wf = pw.Workflow("loop", start_at="first", **more)
    wf.compute(lambda ctx: {"n": ctx.input}, name="first")
    wf.include("sum", adder(), input=lambda ctx: {"n": ctx.outputs.get("sum", {"output": 0})["output"]})
    wf.compute(lambda ctx: [ctx.outputs["sum"], sorted(ctx.outputs)], name="last")
    wf.edge("first", "sum")
    wf.edge("sum.low", "sum")
    wf.edge("sum.high", "last")
    return wf


def nested():
    """Three deep, with the same child mounted twice."""
    inner = adder("inner")
    middle = pw.Workflow("middle", start_at="in", exits={"out": pw.exit("end"), "early": pw.exit("in.high")})
    middle.include("in", inner)
    middle.compute(lambda ctx: [ctx.outputs["in"]["exit"], ctx.input], name="end")
    middle.edge("in.low", "end")
    wf = pw.Workflow("outer", start_at="one")
    wf.include("one", middle)
    wf.include("two", middle, input={"n": 7})
    wf.compute(lambda ctx: ctx.outputs, name="last")
    wf.edge("one.out", "two")
    wf.edge("two.early", "last")
    return wf


def run(wf, given=None, store=None):
    return pw.WorkflowEngine(store=store).run(wf, given)


def passages(store):
    return [(one.event, one.mount) for transition in store.transitions for one in transition.through]


def test_a_child_is_entered_anew_each_time_and_its_parent_sees_exit_and_output():
    store = LocalStore()
    result = run(looping(), 0, store)
    assert (result.status, result.output) == ("completed", [{"exit": "high", "output": 3}, ["first", "sum"]])
    assert [step["nodeId"] for step in result.steps] == [
        "first",
        *["sum/add", "sum/small"] * 2,
        "sum/add",
        "sum/large",
        "last",
    ]
    assert all(step["output"]["seen"] == [] for step in result.steps if step["nodeId"] == "sum/add")
    assert passages(store) == [("include_entered", "sum"), ("include_exited", "sum")] * 3
    assert [step["index"] for step in result.steps] == list(range(8))


def test_three_deep_with_ids_by_mount_path():
    result = run(nested(), {"n": 0})
    assert [step["nodeId"] for step in result.steps] == [
        "one/in/add", "one/in/small", "one/end", "two/in/add", "two/in/large", "last",
    ]  # fmt: skip
    assert result.output["one"] == {"exit": "out", "output": ["low", {"n": 0}]}
    assert result.output["two"] == {"exit": "early", "output": {"exit": "high", "output": 8}}
    assert set(result.output) == {"one", "two"}


@pytest.mark.parametrize("stop", range(9))
def test_stopped_anywhere_it_ends_the_same(stop):
    class Stopping(LocalStore):
        left = stop

        def propose(self, transition):
            if self.left == 0:
                raise StoppedByServer("no longer yours")
            self.left -= 1
            super().propose(transition)

    store = Stopping()
    with pytest.raises(StoppedByServer):
        run(looping(), 0, store)
    store.left = -1
    result = pw.WorkflowEngine(store=store).run(looping(), resume=True)
    assert (result.status, result.output[0]) == ("completed", {"exit": "high", "output": 3})
    assert passages(store) == [("include_entered", "sum"), ("include_exited", "sum")] * 3
    assert len(result.steps) == 8


def test_a_run_may_end_at_an_exit():
    wf = pw.Workflow("only", start_at="sum", includes={"sum": pw.include(adder(), input={"n": 1})})
    result = run(wf)
    assert (result.status, result.output) == ("completed", {"exit": "low", "output": 2})


def test_a_switch_reads_what_the_parent_sees():
    wf = pw.Workflow("by", start_at="sum", includes={"sum": pw.include(adder(), input={"n": 1})})
    wf.compute(lambda ctx: "two", name="two")
    wf.switch("sum.low", "$.output", {2: "two"})
    assert run(wf).output == "two"


def test_the_parents_input_goes_to_a_child_that_is_given_none():
    wf = pw.Workflow("same", start_at="sum", includes={"sum": pw.include(adder())})
    assert run(wf, {"n": 4}).output == {"exit": "high", "output": 5}


def test_a_child_checks_its_input_and_an_exit_its_output():
    def at_most(value):
        if value["n"] > 5:
            raise ValueError("more than 5")
        return {"n": value["n"] + 1}

    child = adder(input=at_most)
    child.exit("high", "large", validate=lambda value: f"<{value}>")
    wf = pw.Workflow("checks", start_at="sum", includes={"sum": pw.include(child)})
    assert run(wf, {"n": 4}).output == {"exit": "high", "output": "<6>"}
    refused = run(wf, {"n": 6})
    assert refused.status == "failed"
    assert "include 'sum'" in refused.error
    assert "more than 5" in refused.error


def test_code_of_an_include_that_fails_ends_the_run_and_says_where():
    wf = pw.Workflow("bad", start_at="first")
    wf.compute(lambda ctx: 1, name="first")
    wf.include("sum", adder(), input=lambda ctx: ctx.outputs["nothing"])
    wf.edge("first", "sum")
    result = run(wf)
    assert (result.status, len(result.steps)) == ("failed", 1)
    assert "include 'sum': its input" in result.error
    assert "KeyError" in result.error


def test_a_childs_limit_of_steps_holds_for_each_entry_and_the_runs_for_all():
    wf = looping()
    assert run(wf, 0).status == "completed"
    tight = pw.Workflow("tight", start_at="sum", includes={"sum": pw.include(adder(max_steps=1), input={"n": 1})})
    result = run(tight)
    assert (result.status, len(result.steps)) == ("failed", 1)
    assert "'adder', mounted as 'sum', has taken 1 steps" in result.error
    result = run(looping(max_steps=4), 0)
    assert (result.status, len(result.steps)) == ("failed", 4)
    assert "the run has taken 4 steps" in result.error


def test_a_failure_inside_is_the_runs():
    child = pw.Workflow("child", start_at="a", exits={"done": pw.exit("a")})
    child.compute(lambda ctx: 1 / 0, name="a")
    result = run(pw.Workflow("p", start_at="c", includes={"c": pw.include(child)}))
    assert (result.status, result.steps[0]["nodeId"]) == ("failed", "c/a")


def test_a_checkpoint_inside_goes_on_behind_its_answer():
    child = pw.Workflow("child", start_at="gate", exits={"done": pw.exit("after")})
    child.checkpoint("gate")
    child.compute(lambda ctx: [ctx.input, ctx.outputs["gate"]], name="after")
    child.edge("gate", "after")
    store, wf = LocalStore(), pw.Workflow("p", start_at="c", includes={"c": pw.include(child, input=5)})
    assert run(wf, None, store).detail == "c/gate"
    store.answer("yes")
    assert pw.WorkflowEngine(store=store).run(wf, resume=True).output == {"exit": "done", "output": [5, "yes"]}


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused(wf, find=None):
    with pytest.raises(WorkflowDefinitionError) as caught:
        compile_workflow(wf, find)
    return str(caught.value)


def parent(child, **includes):
    return pw.Workflow("p", start_at="c", includes={"c": pw.include(child), **includes})


def test_a_cycle_is_refused_with_the_whole_chain():
    one = pw.Workflow("a", start_at="x", exits={"out": pw.exit("x.out")})
    two = pw.Workflow("b", start_at="y", exits={"out": pw.exit("y.out")})
    one.include("x", two)
    two.include("y", one)
    said = refused(parent(one))
    assert "'p' → 'a' (mounted as 'c') → 'b' (mounted as 'c/x') → 'a' (mounted as 'c/x/y')" in said


def test_a_child_without_exits_and_one_that_ends_elsewhere():
    child = adder()
    child.exits.clear()
    assert "workflow 'adder' has no exits" in refused(parent(child))
    child.exit("low", "small")
    assert "ends at 'large', which is behind none of its exits" in refused(parent(child))


def test_edges_that_know_no_exit():
    wf = parent(adder())
    wf.compute(lambda ctx: 1, name="n")
    wf.edge("c.lo", "n")
    assert "workflow 'adder' has no exit 'lo'; it has 'c.low', 'c.high'" in refused(wf)
    wf = parent(adder())
    wf.compute(lambda ctx: 1, name="n")
    wf.edge("c", "n")
    assert "a child is left by one of its exits" in refused(wf)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda wf: wf.exit("z", "c"), "exit 'z' is behind include 'c'"),
        (lambda wf: wf.exit("z", "nobody"), "exit 'z' is behind 'nobody', which is not one of its nodes"),
        (lambda wf: (wf.exit("y", "n"), wf.exit("z", "n")), "exits 'y' and 'z' are behind the same node 'n'"),
        (lambda wf: (wf.edge("n", "n"), wf.exit("z", "n")), "exit 'z' is behind 'n', which an edge leaves as well"),
        (lambda wf: wf.compute(lambda ctx: 1, name="c"), "'c' is a node and an include"),
        (lambda wf: wf.include("d", adder()), "include 'd' cannot be reached"),
    ],
)
def test_faults_around_mounts(change, said):
    wf = parent(adder())
    wf.compute(lambda ctx: 1, name="n")
    wf.edge("c.low", "n")
    change(wf)
    assert said in refused(wf)


def test_arguments_that_cannot_be_right():
    with pytest.raises(WorkflowDefinitionError, match="neither a workflow nor the name"):
        pw.include(7)
    with pytest.raises(WorkflowDefinitionError, match="one argument"):
        pw.include("x", input=lambda: 1)
    with pytest.raises(WorkflowDefinitionError, match="cannot be the name"):
        pw.exit("a.b.c")
    with pytest.raises(WorkflowDefinitionError, match=r"write includes=\{'c': pw.include"):
        pw.Workflow("p", start_at="c", includes={"c": adder()})
    with pytest.raises(WorkflowDefinitionError, match=r"write exits=\{'d': pw.exit"):
        pw.Workflow("p", start_at="c", exits={"d": "c"})


# -- names, paths, sources ---------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / ".pi" / "workflows"
    folder.mkdir(parents=True)
    (folder / "doubler.workflow.py").write_text(DOUBLER)
    (folder / "twice.workflow.py").write_text(
        'import pi_workflows_nb as pw\nwf = pw.Workflow("twice", start_at="one", exits={"done": pw.exit("two.done")})\n'
        'wf.include("one", "./doubler.workflow.py")\n'
        'wf.include("two", "doubler", input=lambda ctx: ctx.outputs["one"]["output"])\nwf.edge("one.done", "two")\n'
    )
    return tmp_path


def test_children_by_name_and_by_path_beside_their_parent(project):
    wf = pw.Workflow("p", start_at="t", includes={"t": pw.include("twice")})
    find = Discovered(project, home=project)
    graph = compile_workflow(wf, find)
    assert run(graph, 3).output == {"exit": "done", "output": {"exit": "done", "output": 12}}
    assert [source["mountPath"] for source in graph.mounted_sources()] == ["t", "t/one", "t/two"]
    assert {source["type"] for source in graph.mounted_sources()} == {"file"}
    for path in (project / ".pi" / "workflows").iterdir():
        path.unlink()
    again = compile_workflow(wf, Stored({"mounts": find.mounts}))
    assert definition_digest(definition_snapshot(again)) == definition_digest(definition_snapshot(graph))
    assert run(again, 3).output == {"exit": "done", "output": {"exit": "done", "output": 12}}


def test_a_file_that_includes_itself(project):
    (project / ".pi" / "workflows" / "selfish.workflow.py").write_text(
        'import pi_workflows_nb as pw\nwf = pw.Workflow("selfish", start_at="me", exits={"x": pw.exit("me.x")},'
        ' includes={"me": pw.include("selfish")})\n'
    )
    wf = pw.Workflow("p", start_at="c", includes={"c": pw.include("selfish")})
    said = refused(wf, Discovered(project, home=project))
    assert "'p' → 'selfish' (mounted as 'c') → 'selfish' (mounted as 'c/me')" in said


def test_a_name_that_is_not_known(project):
    wf = pw.Workflow("p", start_at="c", includes={"c": pw.include("dubler")})
    with pytest.raises(NotFoundError, match="did you mean 'doubler'"):
        compile_workflow(wf, Discovered(project, home=project))
    assert "is looked for when a server starts the run" in refused(wf)


def test_the_snapshot_leads_from_node_to_node_and_says_what_lies_where():
    snapshot = definition_snapshot(nested())
    assert snapshot["startAt"] == "one/in/add"
    assert snapshot["nodes"]["one/in/small"] == {
        "nodeType": "compute", "mountPath": "one/in", "localNodeId": "small",
    }  # fmt: skip
    assert {"from": "one/end", "exit": "one.out", "to": "two/in/add"} in snapshot["edges"]
    assert {"from": "two/in/large", "exit": "two.early", "to": "last"} in snapshot["edges"]
    mounts = {mount["path"]: mount for mount in snapshot["composition"]["mounts"]}
    assert list(mounts) == ["one", "one/in", "two", "two/in"]
    assert mounts["two"] == {
        "path": "two", "workflow": "middle", "startAt": "two/in/add", "maxSteps": 100,
        "exits": {"out": "two/end", "early": "two/in/large"},
    }  # fmt: skip
    assert "composition" not in definition_snapshot(adder())
