"""A workflow walked in this process, and in a real kernel with a debugger."""

from __future__ import annotations

import time
import traceback

import pytest

import pi_workflows_nb as pw
from tests.kernels import CellError, kernel


def pair(first, **kind):
    wf = pw.Workflow("pair", start_at="a")
    wf.compute(name="a", **kind)(first)
    wf.compute(name="b")(lambda ctx: ctx.outputs["a"] + 1)
    wf.edge("a", "b")
    return wf


def test_it_walks_as_the_engine_does():
    store = pw.LocalStore()
    result = pair(lambda ctx: ctx.input["n"]).run_here({"n": 1}, store=store)
    assert (result.status, result.output) == ("completed", 2)
    assert [step["nodeId"] for step in result.steps] == ["a", "b"]
    assert len(store.transitions) == 3
    same = pw.WorkflowEngine().run(pair(lambda ctx: ctx.input["n"]), {"n": 1})
    assert [step["output"] for step in same.steps] == [1, 2]


def test_agents_are_answered_by_the_callable():
    wf = pw.Workflow("ask", start_at="ask")
    wf.agent(name="ask")(lambda ctx: "How many?")
    assert wf.run_here(agent=lambda request: len(request.prompt)).output == 9
    with pytest.raises(pw.SessionRequiredError, match="start it with agent="):
        wf.run_here()


def test_children_by_object_are_walked_too():
    outer = pw.Workflow("outer", start_at="m")
    child = pw.Workflow("child", start_at="x", exits={"out": pw.exit("x")})
    child.compute(name="x")(lambda ctx: 7)
    outer.include("m", child)
    assert outer.run_here().output == {"exit": "out", "output": 7}


def test_a_run_that_waits_goes_on_with_an_answer():
    wf = pair(lambda ctx: 1)
    wf.checkpoint("a")
    store = pw.LocalStore()
    result = wf.run_here(store=store)
    assert (result.status, result.detail) == ("waiting", "a")
    store.answer(41)
    assert wf.run_here(store=store, resume=True).output == 42


def test_what_a_node_raised_is_raised():
    def a(ctx):
        divisor = ctx.input
        return 1 / divisor

    with pytest.raises(ZeroDivisionError) as caught:
        pair(a).run_here(0)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "a"
    with pytest.raises(TimeoutError, match=r"did not end within its 0\.05 s"):
        pair(lambda ctx: ctx.cancelled.wait(5), timeout=0.05).run_here()
    lost = pair(lambda ctx: {"way": "x"})
    lost.switch("a", "$.way", {"y": "b"})
    with pytest.raises(pw.RunFailed, match="the cases are 'y'"):
        lost.run_here()


def test_a_failure_that_was_routed_is_none_of_the_run():
    wf = pair(lambda ctx: 1 / 0)
    wf.compute(name="b")(lambda ctx: "mended")
    wf.switch("a", "$result.outcome", {"failed": "b"})
    result = wf.run_here()
    assert (result.output, result.raised) == ("mended", None)


def test_what_cannot_start_is_refused_before_anything_runs():
    wf = pair(lambda ctx: 1)
    wf.edge("b", "c")
    with pytest.raises(pw.WorkflowDefinitionError, match="'c'"):
        wf.run_here()
    typed = pw.Workflow("typed", start_at="a", input=dict[str, int])
    typed.compute(name="a")(lambda ctx: 1)
    with pytest.raises(pw.WorkflowInputError):
        typed.run_here({"n": "x"})


NODES = """
import asyncio, pdb, threading, time
import pi_workflows_nb as pw
wf = pw.Workflow("w", start_at="a")
@wf.compute
def a(ctx):
    print("printed")
    seen = ctx.input
    pdb.set_trace()
    return seen
"""
ASYNC = """
@wf.compute
async def a(ctx):
    await asyncio.sleep(0)
    return 5
await asyncio.sleep(0)
print(wf.run_here().output)
"""
ENDLESS = """
@wf.compute
def a(ctx):
    print("spins")
    while True:
        pass
wf.run_here()
"""


def test_in_a_kernel_a_debugger_stops_in_a_node_and_an_interrupt_ends_it(tmp_path):
    with kernel(tmp_path) as notebook:
        notebook.run(NODES)
        cell = notebook.begin("print('output', wf.run_here(3).output)")
        for line in ("seen = seen + 1", "p seen", "c"):
            notebook.answer(line)
        said = notebook.end(cell)
        assert "printed" in said
        assert "output 4" in said
        assert notebook.run(ASYNC) == "5\n"
        cell = notebook.begin(ENDLESS)
        time.sleep(1)
        notebook.interrupt()
        with pytest.raises(CellError, match="KeyboardInterrupt"):
            notebook.end(cell)
        notebook.run("time.sleep(0.2); assert 'workflow' not in [each.name for each in threading.enumerate()]")
