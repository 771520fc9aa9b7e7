"""A definition as text, Mermaid and frames, and what `check` finds suspicious about it."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook.graph_layout import graph_of
from pi_workflows_nb.workflows.snapshot import definition_snapshot

READ = pw.idempotent_effect("test.read")
FACTOR = 3
GITHUB_TOKEN = "abc"


def child() -> pw.Workflow:
    wf = pw.Workflow("child", start_at="look", exits={"fine": pw.exit("look")})
    wf.compute(name="look", timeout=5, retries=pw.retry(3))(lambda ctx: 1)
    return wf


def parent() -> pw.Workflow:
    wf = pw.Workflow("parent", start_at="ask")
    wf.decision(name="ask", choices=["go", "stop"], timeout=None)(lambda ctx: "?")
    wf.include("inner", child())
    wf.shell("list", exec={"command": "ls"}, effect=READ)
    wf.compute(name="end")(lambda ctx: ctx.outputs["inner"])
    wf.decision_edge("ask", {"go": "inner", "stop": "end"})
    wf.edge("inner.fine", "list")
    wf.edge("list", "end")
    return wf


def test_text_and_mermaid_have_every_node_and_way():
    graph = parent().graph()
    assert repr(graph) == graph.text
    assert graph.text.splitlines()[0] == "workflow parent: 4 nodes"
    for name in ("ask", "inner/look", "list", "end"):
        assert name in graph.text
    assert graph.mermaid.startswith("flowchart TD\n")
    assert graph.mermaid.count("-->") == len(graph_of(definition_snapshot(parent())).links) == 4
    assert set(graph._repr_mimebundle_()) == {"text/plain", "text/html", "text/vnd.mermaid"}


def test_nodes_and_edges_are_frames():
    graph = parent().graph()
    nodes = graph.nodes
    assert nodes["kind"].to_dict() == {"ask": "decision", "inner/look": "compute", "list": "shell", "end": "compute"}
    assert nodes.loc["inner/look", ["mount", "timeout", "tries"]].tolist() == ["inner", 5.0, 3]
    assert nodes["timeout"].isna().to_dict() == {"ask": True, "inner/look": False, "list": False, "end": False}
    assert nodes.loc["list", ["effect", "recovery"]].tolist() == ["test.read", "idempotent"]
    edges = graph.edges.fillna("").apply(tuple, axis=1).tolist()
    assert edges == [
        ("ask", "inner/look", "$.route", "go", ""),
        ("ask", "end", "$.route", "stop", ""),
        ("inner/look", "list", "", "", "inner.fine"),
        ("list", "end", "", "", ""),
    ]
    lone = pw.Workflow("lone", start_at="a")
    lone.compute(name="a")(lambda ctx: 1)
    assert lone.graph().edges.dtypes.equals(graph.edges.dtypes)


def test_a_workflow_that_could_not_be_started_has_no_graph():
    wf = parent()
    wf.edge("end", "nowhere")
    for look in (wf.graph, wf.check):
        with pytest.raises(pw.WorkflowDefinitionError, match="leads to 'nowhere'"):
            look()


def test_a_sound_workflow_has_nothing_suspicious():
    found = parent().check()
    assert found.empty
    assert repr(found) == "The workflow is sound; its functions carry no variables along."


def warnings(wf: pw.Workflow) -> list[tuple[str, str, str]]:
    found = wf.check()
    found = found[found["level"] == "warning"]
    return list(zip(found["finding"], found["place"], found["what"], strict=True))


def one(wf: pw.Workflow) -> tuple[str, str, str]:
    (found,) = warnings(wf)
    return found


def simple(**kind) -> pw.Workflow:
    wf = pw.Workflow("w", start_at="a", **kind)
    wf.compute(name="a")(lambda ctx: 1)
    wf.compute(name="b")(lambda ctx: 1)
    return wf


def test_a_loop_without_a_way_out():
    wf = simple()
    wf.edge("a", "b")
    wf.edge("b", "a")
    assert one(wf)[:2] == ("dead end", "a")


def test_a_decision_whose_choice_leads_nowhere():
    wf = pw.Workflow("w", start_at="ask")
    wf.decision(name="ask", choices=["x", "y"])(lambda ctx: "?")
    assert one(wf)[:2] == ("dead end", "ask")


@pytest.mark.parametrize(
    ("path", "cases", "kind", "said"),
    [
        ("$result.outcome", {"ok": "b", "failed": "b"}, "missing case", "'timed_out'"),
        ("$.flag", {True: "b"}, "missing case", "'false'"),
        ("$result.outcome", {"ok": "b", "failed": "b", "timed_out": "b", "fine": "b"}, "unused case", "'fine'"),
    ],
)
def test_cases_of_a_switch(path, cases, kind, said):
    wf = simple()
    wf.switch("a", path, cases)
    found = one(wf)
    assert found[:2] == (kind, "a")
    assert said in found[2]


def test_a_switch_on_a_decision_has_a_case_for_each_choice():
    wf = simple()
    wf.decision(name="a", choices=["x", "y"])(lambda ctx: "?")
    wf.switch("a", "$.route", {"x": "b", "z": "b"})
    assert [(kind, what.rpartition(" has ")[2]) for kind, _, what in warnings(wf)] == [
        ("missing case", "no case for 'y', which would fail the run"),
        ("unused case", "the edge from 'a' reads $.route, which is never 'z': that way is never taken"),
    ]


def test_waits_have_no_outcome_that_they_cannot_have():
    wf = pw.Workflow("w", start_at="w")
    wf.wait_event("w", timeout=3)
    wf.sleep("s", 1)
    wf.switch("w", "$result.outcome", {"ok": "s", "timed_out": "s"})
    wf.switch("s", "$result.outcome", {"ok": "e"})
    wf.compute(name="e")(lambda ctx: 1)
    assert warnings(wf) == []


def test_time_outs_that_cannot_be_met():
    wf = pw.Workflow("w", start_at="a")
    wf.shell("a", exec={"command": "ls", "timeout": 60}, effect=READ, timeout=10)
    assert one(wf)[:2] == ("time-out", "a")
    wf = pw.Workflow("w", start_at="a")
    wf.agent(name="a", timeout=0.1)(lambda ctx: "?")
    assert one(wf)[:2] == ("time-out", "a")
    wf = pw.Workflow("w", start_at="a")
    wf.compute(name="a", timeout=None, retries=pw.retry(2, on=TimeoutError))(lambda ctx: 1)
    assert one(wf)[:2] == ("time-out", "a")


def test_limits_of_steps_that_no_run_can_keep():
    wf = simple(max_steps=1)
    wf.edge("a", "b")
    assert one(wf)[:2] == ("step limit", "w")
    inner = simple(max_steps=1, exits={"out": pw.exit("b")})
    inner.edge("a", "b")
    outer = pw.Workflow("outer", start_at="m", includes={"m": inner_of(inner)})
    assert one(outer)[:2] == ("step limit", "m")


def inner_of(workflow: pw.Workflow) -> object:
    return pw.include(workflow)


def test_retries_of_a_manual_effect():
    wf = pw.Workflow("w", start_at="a")
    wf.action(name="a", effect=pw.manual_effect("mail.send"), retries=pw.retry(3))(lambda ctx: 1)
    assert one(wf)[:2] == ("effect", "a")


def test_outputs_of_nodes_that_are_none():
    wf = simple()
    wf.compute(name="a")(lambda ctx: ctx.outputs["c"] + ctx.outputs["b"] + ctx.results.get("d", 0))
    wf.edge("a", "b")
    assert [(kind, place, "'c'" in what, "'d'" in what) for kind, place, what in warnings(wf)] == [
        ("unknown output", "a", True, False),
        ("unknown output", "a", False, True),
    ]


def test_captured_variables_and_secrets():
    wf = simple()
    wf.compute(name="a")(lambda ctx: FACTOR)
    wf.compute(name="b")(lambda ctx: GITHUB_TOKEN)
    wf.edge("a", "b")
    found = wf.check()
    assert found["level"].tolist() == ["warning", "note"]
    assert found["finding"].tolist() == ["secret", "captured"]
    assert found["place"].tolist() == ["GITHUB_TOKEN", "FACTOR"]
    assert (found["bytes"] > 0).all()
    assert "FACTOR (5 bytes): carried along by node 'a'" in repr(found)
