"""What an author may write, and what a type checker must see; `error:` says what on the line it stands on."""

from __future__ import annotations

from typing import Literal, assert_type

import pi_workflows_nb as pw

wf: pw.Workflow[Literal["ask", "look", "done"]] = pw.Workflow("typed", start_at="ask")
READ = pw.idempotent_effect("files.read")


@wf.decision(choices=["go", "stop"])
def ask(ctx: pw.Context) -> str:
    return f"Go, {ctx.workflow_name}, {ctx.attempt_number + 1}?"


@wf.action(effect=READ, timeout=lambda ctx: ctx.input["seconds"])
async def look(ctx: pw.Context) -> dict[str, str]:
    await ctx.publish_update("progress", "look", {"schema": pw.PROGRESS, "status": "running"})
    return {"key": ctx.effect.idempotency_key}


@wf.compute
def done(ctx):  # type: ignore[no-untyped-def]
    return ctx.outputs


wf.decision_edge("ask", {"go": "look", "stop": "done"})
wf.edge("look", "done")
wf.edge("look", switch="$result.outcome", cases={"ok": "done", "failed": "ask"})
wf.shell("done", exec={"command": "ls"}, effect=READ, parse=lambda result: result["stdout"])
assert_type(wf.run_here({"seconds": 5}).status == "completed", bool)
free = pw.Workflow("free", start_at="a")
free.edge("a", "b")
pw.define_workflow(name="whole", start_at="a", nodes={"a": pw.compute(lambda ctx: ctx.input)})

wf.edge("look", "dome")  # error: No overload variant of "edge" of "Workflow" matches argument types "str", "str"
wf.edge("lok", "done")  # error: No overload variant of "edge" of "Workflow" matches argument types "str", "str"
wf.switch("look", "$.x", {"a": "dome"})  # error: Dict entry 0 has incompatible type "str": "Literal['dome']"
wf.decision_edge("ask", {"go": "lok"})  # error: Dict entry 0 has incompatible type "str": "Literal['lok']"
wf.edge("look")  # error: No overload variant of "edge" of "Workflow" matches argument type "str"
free.edge("a", 3)  # error: No overload variant of "edge" of "Workflow" matches argument types "str", "int"
pw.Workflow("w", start_at=1)  # error: Value of type variable "N" of "Workflow" cannot be "int"


@wf.compute(name="look")
def fields(ctx: pw.Context) -> object:
    return ctx.output  # error: "Context" has no attribute "output"; maybe "outputs"?


@wf.compute(name="look")  # error: Value of type variable "F" of function cannot be "Callable[[], int]"
def without_context() -> int:
    return 1


@wf.agent(name="ask")  # error: Value of type variable "P" of function cannot be "Callable[[Context], int]"
def no_prompt(ctx: pw.Context) -> int:
    return 1


wf.action(name="look")  # error: No overload variant of "action" of "Workflow" matches argument type "str"
pw.compute(without_context)  # error: Argument 1 to "compute" has incompatible type "Callable[[], int]"
pw.compute(done, timeout="5")  # error: Argument "timeout" to "compute" has incompatible type "str"
pw.retry("3")  # error: Argument 1 to "retry" has incompatible type "str"
