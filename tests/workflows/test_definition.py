"""Writing workflows: both spellings, what is refused, and that the refusal says where and what to do."""

from __future__ import annotations

import functools

import pytest

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.definition import Workflow, define_workflow
from pi_workflows_nb.workflows.edges import decision_edge, edge, switch
from pi_workflows_nb.workflows.effects import idempotent_effect, manual_effect
from pi_workflows_nb.workflows.nodes import Action, Agent, Checkpoint, Compute, Decision, Shell
from pi_workflows_nb.workflows.nodes import action as action_node
from pi_workflows_nb.workflows.nodes import agent as agent_node
from pi_workflows_nb.workflows.nodes import checkpoint as checkpoint_node
from pi_workflows_nb.workflows.nodes import compute as compute_node
from pi_workflows_nb.workflows.nodes import decision as decision_node
from pi_workflows_nb.workflows.nodes import shell as shell_node
from pi_workflows_nb.workflows.retries import retry
from pi_workflows_nb.workflows.snapshot import definition_snapshot
from pi_workflows_nb.workflows.validation import validate

EFFECT = idempotent_effect("test.read")


def f(ctx):
    return ctx


def decorated() -> Workflow:
    wf = Workflow("triage", start_at="classify", max_steps=50)

    @wf.decision(choices=["bug", "question"])
    def classify(ctx):
        return "Classify this."

    @wf.action(effect=manual_effect("tracker.create"), timeout=5, retries=retry(3))
    async def open_ticket(ctx):
        return 1

    @wf.agent(expected_output="a text", validate=str)
    def answer(ctx):
        return "Answer this."

    wf.shell("log", exec={"command": "git", "args": ["log"]}, effect=EFFECT)

    @wf.compute
    def done(ctx):
        return {}

    wf.checkpoint("gate", summary="please look")
    wf.decision_edge("classify", {"bug": "open_ticket", "question": "answer"})
    wf.edge("open_ticket", "log")
    wf.edge("answer", switch="$result.outcome", cases={"ok": "done", "failed": "log"})
    wf.switch("log", "$.exitCode", {0: "done"})
    wf.edge("done", "gate")
    return wf


def test_both_spellings_make_the_same():
    wf = decorated()
    validate(wf)
    same = define_workflow(
        name="triage",
        start_at="classify",
        max_steps=50,
        nodes={
            "classify": decision_node(f, choices=("bug", "question")),
            "open_ticket": action_node(f, effect=manual_effect("tracker.create"), timeout=5, retries=retry(3)),
            "answer": agent_node(f, expected_output="a text", validate=str),
            "log": shell_node({"command": "git", "args": ["log"]}, effect=EFFECT),
            "done": compute_node(f),
            "gate": checkpoint_node(summary="please look"),
        },
        edges=[
            decision_edge("classify", {"bug": "open_ticket", "question": "answer"}),
            edge("open_ticket", "log"),
            switch("answer", "$result.outcome", {"ok": "done", "failed": "log"}),
            switch("log", "$.exitCode", {0: "done"}),
            edge("done", "gate"),
        ],
    )
    assert definition_snapshot(wf) == definition_snapshot(same)
    assert wf.edges == same.edges
    kinds = {name: type(node) for name, node in same.nodes.items()}
    assert kinds == {name: type(node) for name, node in wf.nodes.items()}
    assert list(kinds.values()) == [Decision, Action, Agent, Shell, Compute, Checkpoint]
    assert [node.name for node in same.nodes.values()] == list(same.nodes)


def test_what_nodes_hold():
    wf = decorated()
    ticket = wf.nodes["open_ticket"]
    assert isinstance(ticket, Action)
    assert (ticket.type, ticket.execution, ticket.timeout) == ("action", "function", 5)
    assert ticket.retries is not None
    assert ticket.retries.times == 3
    assert ticket.effect.recovery == "manual"
    log = wf.nodes["log"]
    assert isinstance(log, Shell)
    assert (log.type, log.execution, log.timeout, log.fn) == ("action", "shell", 900.0, None)
    classify = wf.nodes["classify"]
    assert isinstance(classify, Decision)
    assert (classify.type, classify.choices, classify.field) == ("agent", ("bug", "question"), "route")
    assert classify.expected_output == '{"route": "bug" | "question"}'


def test_decorators_leave_the_function_alone_and_take_names():
    wf = Workflow("w", start_at="total")

    @wf.compute(name="total", timeout=None)
    def sum_up(ctx):
        return ctx + 1

    for number in range(3):
        wf.compute(name=f"n{number}")(sum_up)
    wf.compute("by-position")(sum_up)
    assert sum_up(1) == 2
    assert list(wf.nodes) == ["total", "n0", "n1", "n2", "by-position"]
    assert wf.nodes["total"].timeout is None
    assert wf.nodes["n1"].fn is sum_up


def test_shell_and_checkpoint_as_decorators():
    wf = Workflow("w", start_at="log")

    @wf.shell(effect=EFFECT, parse=str)
    def log(ctx):
        return {"command": "git"}

    @wf.checkpoint(validate=int)
    def gate(ctx):
        return "?"

    @wf.checkpoint
    def second(ctx):
        return "??"

    node = wf.nodes["log"]
    assert isinstance(node, Shell)
    assert node.exec is log
    assert node.parse is str
    assert wf.nodes["gate"].fn is gate
    assert wf.nodes["gate"].validate is int
    assert wf.nodes["second"].fn is second


def test_running_a_cell_again_replaces():
    wf = Workflow("w", start_at="a")
    for version in (1, 2):
        wf.compute(name="a")(functools.partial(f2, version))
        wf.compute(name="b")(f)
        wf.edge("a", "b") if version == 1 else wf.switch("a", "$.x", {"y": "b"})
    assert list(wf.nodes) == ["a", "b"]
    assert wf.nodes["a"].fn.args == (2,)
    assert list(wf.edges) == ["a"]
    assert wf.edges["a"].switch == "$.x"


def test_cases_of_python_values():
    assert switch("a", "$.x", {True: "t", None: "n", 2: "two", 2.5: "half", "x": "y"}).cases == {
        "true": "t",
        "null": "n",
        "2": "two",
        "2.5": "half",
        "x": "y",
    }


def f2(version, ctx):
    return version


def simple(*more, start_at="a", **nodes):
    return define_workflow(name="w", start_at=start_at, nodes={"a": compute_node(f), **nodes}, edges=list(more))


def no_argument():
    return 1


async def later(value):
    return value


def yields(ctx):
    yield 1


MISTAKES = {
    "unknown start": (lambda: simple(start_at="aa"), r"start_at='aa' is not one of its nodes; did you mean 'a'\?"),
    "no nodes": (lambda: define_workflow(name="w", start_at="a", nodes={}), r"it has no nodes"),
    "unknown target": (lambda: simple(edge("a", "zz")), r"edge from 'a' leads to 'zz'.*they are 'a'"),
    "unknown source": (lambda: simple(edge("zz", "a")), r"an edge leaves 'zz'.*del wf.edges\['zz'\]"),
    "unknown case target": (lambda: simple(switch("a", "$.x", {"y": "zz"})), r"edge from 'a' leads to 'zz'"),
    "two edges": (
        lambda: simple(edge("a", "b"), edge("a", "c"), b=compute_node(f), c=compute_node(f)),
        r"two edges leave node 'a', to 'b' and to 'c'.*pw.switch",
    ),
    "unreachable": (lambda: simple(b=compute_node(f)), r"node 'b' cannot be reached from 'a'.*del wf.nodes\['b'\]"),
    "decision without a case": (
        lambda: simple(edge("a", "d"), decision_edge("d", {"x": "a"}), d=decision_node(f, choices=["x", "y", "z"])),
        r"decision_edge from 'd' has no case for 'y', 'z'",
    ),
    "decision with a case too many": (
        lambda: simple(edge("a", "d"), decision_edge("d", {"x": "a", "q": "a"}), d=decision_node(f, choices=["x"])),
        r"decision_edge from 'd' has cases for 'q'; its choices are 'x'",
    ),
    "decision edge elsewhere": (
        lambda: simple(decision_edge("a", {"x": "a"})),
        r"decision_edge leaves 'a', which is a node of kind compute",
    ),
    "reserved name": (lambda: Workflow("status", start_at="a"), r"'status' cannot be .*reserved.*answer, cancel"),
    "name like a path": (lambda: Workflow("a/b", start_at="a"), r"'a/b' cannot be the name of a workflow"),
    "empty name": (lambda: Workflow(" ", start_at="a"), r"' ' cannot be the name of a workflow"),
    "node name": (lambda: simple(**{"1st": compute_node(f)}), r"'1st' cannot be the name of a node"),
    "node that is a function": (lambda: simple(b=f), r"node 'b' of workflow 'w' is <function.*pw.compute\(fn\)"),
    "edge that is a pair": (lambda: simple(("a", "b")), r"\('a', 'b'\) is not an edge; write pw.edge"),
    "max_steps": (lambda: Workflow("w", start_at="a", max_steps=0), r"workflow 'w': max_steps=0"),
    "title": (lambda: Workflow("w", start_at="a", title=3), r"workflow 'w': title is a text or a function"),
    "input": (lambda: Workflow("w", start_at="a", input={}), r"workflow 'w': input is a function or a type"),
    "no argument": (lambda: compute_node(no_argument), r"compute node 'no_argument'.*write `def …\(ctx\)`"),
    "generator": (lambda: compute_node(yields), r"compute node 'yields': the function yields"),
    "not a function": (lambda: compute_node(3), r"compute node: 3 is not a function"),
    "no effect": (lambda: action_node(f), r"action node 'f' says nothing about.*pw.idempotent_effect\("),
    "effect as text": (lambda: action_node(f, effect="x"), r"action node 'f' has effect='x': add effect=pw"),
    "effect type": (lambda: idempotent_effect("two words"), r"idempotent_effect\('two words'\)"),
    "timeout": (lambda: compute_node(f, timeout=-1), r"compute node 'f': timeout=-1; seconds are greater than 0"),
    "timeout text": (lambda: compute_node(f, timeout="5"), r"timeout='5'; give seconds as a number"),
    "retries": (lambda: compute_node(f, retries=3), r"retries=3; write retries=pw.retry\(times=3\)"),
    "validate": (lambda: agent_node(f, validate="x"), r"agent node 'f': validate='x'; give a function"),
    "async validate": (lambda: agent_node(f, validate=later), r"agent node 'f': validate is an async function"),
    "async input": (lambda: Workflow("w", start_at="a", input=later), r"workflow 'w': input is an async function"),
    "choices text": (lambda: decision_node(f, choices="ab"), r"decision node 'f': choices is a list"),
    "choices twice": (lambda: decision_node(f, choices=["a", "a"]), r"the same choice stands twice"),
    "choices none": (lambda: decision_node(f, choices=[]), r"choices needs at least one name"),
    "shell key": (lambda: shell_node({"cmd": "ls"}, effect=EFFECT), r"shell node: the command has no key 'cmd'"),
    "nowhere": (lambda: edge("a"), r"edge from 'a': it leads nowhere"),
    "both": (lambda: edge("a", "b", switch="$.x", cases={"y": "c"}), r"edge from 'a': it has a target .* and a switch"),
    "cases alone": (lambda: edge("a", cases={"y": "c"}), r"edge from 'a': cases need a path"),
    "path": (lambda: switch("a", "route", {"y": "c"}), r"edge from 'a': 'route' is not a path; write '\$\.field'"),
    "no cases": (lambda: switch("a", "$.x", {}), r"edge from 'a': cases=\{\}; give a dict"),
    "case of a tuple": (lambda: switch("a", "$.x", {(1,): "c"}), r"edge from 'a': \(1,\) cannot be a case"),
    "same case": (lambda: switch("a", "$.x", {"true": "b", True: "c"}), r"two cases mean 'true'"),
    "retry times": (lambda: retry(0), r"retry\(times=0\)"),
    "retry backoff": (lambda: retry(2, backoff=(5, 2, 1)), r"retry\(backoff=\(5, 2, 1\)\)"),
    "retry factor": (lambda: retry(2, backoff=(1, 0.5, 9)), r"a factor of at least 1"),
    "retry on": (lambda: retry(2, on=("x",)), r"'x' is not an exception class"),
    "retry on nothing": (lambda: retry(2, on=()), r"no error would ever be tried again"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_named_with_its_fix(mistake):
    make, said = MISTAKES[mistake]
    with pytest.raises(WorkflowDefinitionError, match=said):
        make()


def test_mistakes_in_decorators_name_the_node():
    wf = Workflow("w", start_at="a")
    with pytest.raises(WorkflowDefinitionError, match=r"node 'total': compute node 'f': timeout=0"):
        wf.compute(name="total", timeout=0)(f)
    with pytest.raises(WorkflowDefinitionError, match=r"wf.compute node 'total': there is no keyword 'retry'"):
        wf.compute(name="total", retry=3)(f)
    with pytest.raises(WorkflowDefinitionError, match=r"has no name that the node could take"):
        wf.compute(lambda ctx: 1)
    with pytest.raises(WorkflowDefinitionError, match=r"node 'log': the command|shell node.*args"):
        wf.shell("log", exec={"command": "ls", "args": 1}, effect=EFFECT)
    assert wf.nodes == {}


def test_all_faults_of_a_graph_are_told_at_once():
    wf = Workflow("w", start_at="a")
    wf.compute(name="b")(f)
    wf.edge("b", "c")
    with pytest.raises(WorkflowDefinitionError, match=r"(?s)has 2 faults:\n- start_at='a'.*\n- the edge from 'b'"):
        wf.check()


def test_retry_pauses():
    policy = retry(5, backoff=(1, 2, 6), on=ConnectionError)
    assert [policy.delay(tries) for tries in (1, 2, 3, 4, 5000)] == [1, 2, 4, 6, 6]
    assert policy.covers(ConnectionResetError())
    assert not policy.covers(ValueError())
    assert retry(2).covers(ValueError())
