"""A run from a cell to its end: values, failures, retries, timeouts, routes, answers."""

from __future__ import annotations

import asyncio
import time

import pytest

import pi_workflows_nb as pw


def test_steps_and_output(server):
    wf = pw.Workflow("sum", start_at="read")

    @wf.shell(name="read", effect=pw.idempotent_effect("echo"))
    def read(ctx):
        return {"command": "echo", "args": [ctx.input["text"]]}

    @wf.compute
    async def shape(ctx):
        await asyncio.sleep(0)
        return len(ctx.outputs["read"]["stdout"].strip())

    wf.edge("read", "shape")
    run = server.run(wf, {"text": "hello"}).wait(timeout=30)
    assert (run.status, run.output) == ("completed", 5)
    assert list(server.steps(run=run.id).node_id) == ["read", "shape"]


def test_a_failure_carries_the_traceback_of_the_users_code(server):
    wf = pw.Workflow("fails", start_at="boom")

    @wf.compute
    def boom(ctx):
        return 1 / ctx.input

    run = server.run(wf, 0).wait(timeout=30)
    assert run.status == "failed"
    with pytest.raises(pw.RunFailed, match="ZeroDivisionError") as told:
        _ = run.output
    assert "return 1 / ctx.input" in str(told.value)


def test_a_failure_can_be_routed_and_a_try_repeated(server, tmp_path):
    tries = tmp_path / "tries"
    wf = pw.Workflow("recovers", start_at="flaky")

    @wf.compute(retries=pw.retry(times=3, backoff=(0.01, 2, 1), on=(ConnectionError,)))
    def flaky(ctx):
        with tries.open("a") as file:
            file.write("x")
        if len(tries.read_text()) < 3:
            raise ConnectionError("not yet")
        return "there"

    @wf.compute
    def breaks(ctx):
        raise ValueError("always")

    @wf.compute
    def mended(ctx):
        return [ctx.outputs["flaky"], ctx.results["breaks"]["outcome"]]

    wf.edge("flaky", "breaks")
    wf.edge("breaks", switch="$result.outcome", cases={"ok": "mended", "failed": "mended"})
    run = server.run(wf).wait(timeout=30)
    assert run.output == ["there", "failed"]
    assert len(server.attempts(run=run.id)) == 5
    assert list(server.steps(run=run.id).node_id) == ["flaky", "breaks", "mended"]


def test_a_timeout_ends_code_that_does_not_stop(server):
    wf = pw.Workflow("slow", start_at="hangs")

    @wf.compute(timeout=0.2)
    def hangs(ctx):
        while True:
            pass

    @wf.compute
    def after(ctx):
        return ctx.results["hangs"]["outcome"]

    wf.edge("hangs", switch="$result.outcome", cases={"timed_out": "after", "ok": "after"})
    run = server.run(wf).wait(timeout=30)
    assert run.output == "timed_out"


def test_an_answer_lets_a_checkpoint_go_on(server):
    wf = pw.Workflow("asks", start_at="draft")

    @wf.compute
    def draft(ctx):
        return "draft"

    def sure(value):
        if value not in ("yes", "no"):
            raise ValueError("say yes or no")
        return value

    @wf.checkpoint(validate=sure)
    def approve(ctx):
        return {"question": ctx.outputs["draft"]}

    @wf.compute
    def done(ctx):
        return f"{ctx.outputs['draft']} {ctx.outputs['approve']}"

    wf.edge("draft", "approve")
    wf.edge("approve", "done")
    run = server.run(wf).wait(timeout=30)
    assert run.status == "waiting"
    with pytest.raises(pw.NotFinished):
        _ = run.output
    with pytest.raises(pw.WorkflowInputError, match="say yes or no"):
        run.answer("maybe")
    assert run.status == "waiting"
    run.answer("yes").wait(timeout=30)
    assert (run.status, run.output, len(run.chain)) == ("completed", "draft yes", 2)
    with pytest.raises(pw.ConflictError):
        run.answer("yes")


def test_a_callable_answers_agent_and_decision_nodes(server):
    wf = pw.Workflow("triage", start_at="classify")

    @wf.decision(choices=("bug", "question"))
    def classify(ctx):
        return f"Classify: {ctx.input}"

    @wf.compute
    def bug(ctx):
        return ctx.outputs["classify"]

    @wf.agent
    def question(ctx):
        return "Answer it"

    wf.decision_edge("classify", {"bug": "bug", "question": "question"})
    with pytest.raises(pw.SessionRequiredError):
        server.run(wf, "it crashes", mode="headless")

    def agent(request):
        return "bug" if "crash" in request.prompt else "question" if request.choices else {"said": request.prompt}

    assert server.run(wf, "it crashes", agent=agent).wait(timeout=30).output == {"route": "bug"}
    assert server.run(wf, "why?", agent=agent).wait(timeout=30).output == {"said": "Answer it"}


def test_pause_resume_and_cancel(server, tmp_path):
    gate = tmp_path / "gate"
    wf = pw.Workflow("long", start_at="first")

    @wf.compute
    def first(ctx):
        return 1

    @wf.compute
    def second(ctx):
        while not gate.exists() and not ctx.cancelled.wait(0.01):
            pass
        return 2

    wf.edge("first", "second")
    run = server.run(wf)
    _until(lambda: len(server.steps(run=run.id)) == 1)
    assert run.pause().status == "paused"
    gate.touch()
    assert run.resume().wait(timeout=30).output == 2
    gate.unlink()
    other = server.run(wf)
    _until(lambda: len(server.steps(run=other.id)) == 1)
    assert other.cancel().status == "cancelled"
    assert other.cancel().wait(timeout=30).status == "cancelled"
    with pytest.raises(pw.RunCancelled):
        _ = other.output
    with pytest.raises(pw.ConflictError):
        other.pause()


def test_a_key_starts_a_run_once(server):
    def made(constant):
        wf = pw.Workflow("once", start_at="a")
        wf.compute(lambda ctx: constant, name="a")
        return wf

    first = server.run(made(1), {"x": 1}, key="k").wait(timeout=30)
    again = server.run(made(1), {"x": 1}, key="k")
    assert again.id == first.id
    assert again.output == 1
    with pytest.raises(pw.ConflictError, match="key"):
        server.run(made(1), {"x": 2}, key="k")
    assert len(server.runs()) == 1


def test_values_of_5_mb_cross_whole(server):
    wf = pw.Workflow("large", start_at="twice")

    @wf.compute
    def twice(ctx):
        return ctx.input + ctx.input

    @wf.compute
    def count(ctx):
        return len(ctx.outputs["twice"])

    wf.edge("twice", "count")
    run = server.run(wf, "é" * 1_250_000).wait(timeout=60)
    assert run.output == 2_500_000
    assert run.output_of("twice") == "é" * 2_500_000


def test_a_workflow_of_the_project_is_started_by_name(server):
    folder = server.project / ".pi" / "workflows"
    folder.mkdir(parents=True)
    (folder / "greet.workflow.py").write_text(
        "import pi_workflows_nb as pw\n"
        "wf = pw.Workflow('greet', start_at='say', title='Greeting')\n"
        "@wf.compute\n"
        "def say(ctx):\n"
        '    return f"hello {ctx.input}"\n'
    )
    run = server.run("greet", "you").wait(timeout=30)
    assert run.output == "hello you"
    with pytest.raises(pw.NotFoundError, match="greet"):
        server.run("gret")


def test_the_text_of_a_cell_is_kept_beside_the_file(server):
    text = (
        "import pi_workflows_nb as pw\n"
        "wf = pw.Workflow('said', start_at='say')\n"
        "wf.compute(lambda ctx: 'said', name='say')\n"
    )
    payload = {
        "cell": {"name": "said", "text": text},
        "input": {"inline": None},
        "project": str(server.project),
        "workflow": "said",
    }
    started = server._connection.request("run.start", payload)
    assert server.get_run(started.receipt["runId"]).wait(timeout=30).output == "said"
    (kept,) = (server.database.parent / f"{server.database.name}.d" / "sources").iterdir()
    assert kept.read_text() == text


def test_environment_and_prints_reach_where_they_belong(server, monkeypatch):
    monkeypatch.setenv("PLANTED", "from the cell")
    wf = pw.Workflow("prints", start_at="say")

    @wf.compute
    def say(ctx):
        import os

        print("PLANTED is", os.environ["PLANTED"])

    run = server.run(wf).wait(timeout=30)
    assert list(run.logs().text) == ["PLANTED is from the cell"]


def _until(true, seconds=20.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.01)


def test_an_effect_whose_request_changes_fails_its_node_alone(server, tmp_path):
    wf = pw.Workflow("changes", start_at="act")
    seen = tmp_path / "seen"

    def request(ctx):
        with seen.open("a") as file:
            file.write("x")
        return len(seen.read_text())

    @wf.action(
        effect=pw.idempotent_effect("t.create", request=request),
        retries=pw.retry(times=2, backoff=(0.01, 1, 1), on=(ConnectionError,)),
    )
    def act(ctx):
        raise ConnectionError("once more")

    run = server.run(wf).wait(timeout=30)
    assert run.status == "failed"
    assert "another request" in run.error
    assert list(server.effects().status) == ["cancelled"]


def test_an_effect_that_happened_is_kept_though_its_value_is_none(server):
    wf = pw.Workflow("odd", start_at="act")

    @wf.action(effect=pw.manual_effect("t.create"))
    def act(ctx):
        return object()

    run = server.run(wf).wait(timeout=30)
    assert run.status == "failed"
    assert "ctx.save" in run.error
    assert list(server.effects().status) == ["applied"]
