"""A run as an object: wait, await, output, errors, answers, controls, on a real server with real runners."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import (
    ConflictError,
    NotFinished,
    NotFoundError,
    QueryError,
    RunCancelled,
    RunFailed,
    ServerStoppedError,
    SessionRequiredError,
    WaitTimeout,
    WorkflowDefinitionError,
    WorkflowInputError,
)

in_both_places = pytest.mark.parametrize("placement", ["thread", "process"])


@pytest.fixture
def placement():
    return "thread"


@pytest.fixture
def server(state_file, tmp_path, placement):
    with pw.start(database=state_file, project=tmp_path, server=placement) as started:
        assert started.placement == placement
        yield started


def adding():
    wf = pw.Workflow("adding", start_at="shape")

    @wf.compute
    def shape(ctx):
        print("shaping", ctx.input)
        return ctx.input["n"] + 1

    @wf.compute
    def double(ctx):
        return 2 * ctx.outputs["shape"]

    wf.edge("shape", "double")
    return wf


def asking():
    wf = pw.Workflow("asking", start_at="gate")

    def whole(value):
        if not isinstance(value, int):
            raise TypeError("a whole number, please")
        return value

    wf.checkpoint("gate", summary="how many?", validate=whole)

    @wf.compute
    def done(ctx):
        return {"said": ctx.outputs["gate"]}

    wf.edge("gate", "done")
    return wf


def failing():
    wf = pw.Workflow("failing", start_at="fall")

    @wf.compute
    def fall(ctx):
        depth = {}
        return depth["missing"]

    return wf


def slow(seconds=30.0):
    wf = pw.Workflow("slow", start_at="sleep")

    @wf.compute
    def sleep(ctx):
        ctx.cancelled.wait(seconds)
        return "slept"

    return wf


@in_both_places
def test_a_run_gives_its_output(server):
    run = server.run(adding(), {"n": 20}, tags=["weekly", "try"])
    assert run.wait(timeout=30) is run
    assert (run.status, run.output, run.output_of("shape")) == ("completed", 42, 21)
    assert (run.input, run.tags, run.error, run.chain) == ({"n": 20}, ["weekly", "try"], None, [run.id])
    assert list(run.logs()["text"]) == ["shaping {'n': 20}"]
    assert list(run.steps()["node_id"]) == ["shape", "double"]
    assert list(server.runs(tag="try").index) == [run.id]


def test_a_failed_run_tells_the_traceback_of_its_code(server):
    run = server.run(failing()).wait(timeout=30)
    assert run.status == "failed"
    with pytest.raises(RunFailed, match=r'depth\["missing"\]') as caught:
        _ = run.output
    assert "KeyError: 'missing'" in str(caught.value)
    assert "test_runs.py" in str(caught.value)
    assert "KeyError" in run.error
    with pytest.raises(RunFailed):
        run.output_of("fall")


def test_outputs_that_are_not_there_say_why(server):
    run = server.run(asking()).wait(timeout=30)
    assert run.status == "waiting"
    with pytest.raises(NotFinished, match=r"run\.answer"):
        _ = run.output
    with pytest.raises(NotFinished, match="no output"):
        run.output_of("done")
    with pytest.raises(NotFoundError, match="gate, done"):
        run.output_of("nothing")


@in_both_places
def test_an_answer_lets_the_run_go_on(server):
    run = server.run(asking()).wait(timeout=30)
    with pytest.raises(WorkflowInputError, match="a whole number, please"):
        run.answer("many")
    assert run.status == "waiting"
    run.answer(7).wait(timeout=30)
    assert run.output == {"said": 7}
    assert run.output_of("gate") == 7
    first, second = run.chain
    assert first == run.id
    assert list(run.runs().index) == [second, first]
    assert server.get_run(second).chain == run.chain
    with pytest.raises(ConflictError):
        run.answer(8)


def test_a_wait_for_the_end_outlasts_a_checkpoint(server):
    run = server.run(asking())
    with pytest.raises(WaitTimeout, match="goes on"):
        run.wait(timeout=0.5, until="end")
    answering = threading.Timer(0.2, run.answer, [1])
    answering.start()
    run.wait(timeout=30, until="end")
    answering.join()
    assert run.output == {"said": 1}
    with pytest.raises(QueryError, match="until"):
        run.wait(until="forever")


@in_both_places
def test_pause_resume_cancel(server):
    run = server.run(slow())
    wait_for(lambda: run.status == "running")
    assert run.pause().wait(timeout=10).status == "paused"
    with pytest.raises(NotFinished, match=r"run\.resume"):
        _ = run.output
    run.resume()
    wait_for(lambda: run.status == "running")
    run.cancel().wait(timeout=10)
    assert run.status == "cancelled"
    with pytest.raises(RunCancelled):
        _ = run.output
    assert run.cancel().status == "cancelled"
    with pytest.raises(ConflictError):
        run.pause()


def test_waiting_ends_after_its_time_and_leaves_the_run_going(server):
    run = server.run(slow())
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=r"0\.3 s"):
        run.wait(timeout=0.3)
    assert time.monotonic() - began < 1
    assert run.status in {"queued", "running"}
    run.cancel()


@in_both_places
def test_an_interrupt_ends_a_wait_within_half_a_second_and_leaves_the_run_going(server):
    run = server.run(slow())
    wait_for(lambda: run.status == "running")
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert time.monotonic() - sent[0] < 0.5
    timer.join()
    assert run.status == "running"
    run.cancel()


@in_both_places
def test_awaiting_leaves_the_loop_free(server):
    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        first, second = await asyncio.gather(awaited(server.run(adding(), {"n": 1})), awaited(server.run(slow(0.3))))
        ticking.cancel()
        return first.output, second.output, ticks

    async def awaited(run):
        return await run

    first, second, ticks = asyncio.run(both())
    assert (first, second) == (4, "slept")
    assert ticks > 10


def test_giving_up_an_await_leaves_the_run_going(server):
    run = server.run(slow())

    async def impatient():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.3)

    asyncio.run(impatient())
    assert run.status in {"queued", "running"}
    run.cancel()


@in_both_places
def test_a_key_adopts_the_run_it_started(server):
    first = server.run(adding(), {"n": 1}, key="once").wait(timeout=30)
    again = server.run(adding(), {"n": 1}, key="once")
    assert again.id == first.id
    assert first.note is None
    assert again.note is None or "changed" in again.note
    with pytest.raises(ConflictError):
        server.run(adding(), {"n": 2}, key="once")
    assert len(server.runs()) == 1


def test_a_key_of_a_failed_run_says_so(server):
    server.run(failing(), key="once").wait(timeout=30)
    again = server.run(failing(), key="once")
    assert "failed" in again.note
    assert again.note in repr(again)
    assert again.note in again._repr_mimebundle_()["text/plain"]


def test_a_run_is_found_again(server):
    run = server.run(adding(), {"n": 1}).wait(timeout=30)
    assert server.get_run(run.id).output == 4
    with pytest.raises(NotFoundError, match="no run 'nothing'"):
        server.get_run("nothing")


def test_an_agent_answers_from_the_runners_process(server):
    wf = pw.Workflow("deciding", start_at="choose")

    @wf.decision(choices=["bug", "question"])
    def choose(ctx):
        return "which?"

    @wf.compute
    def bug(ctx):
        return "fixed"

    @wf.compute
    def question(ctx):
        return "answered"

    wf.decision_edge("choose", {"bug": "bug", "question": "question"})
    with pytest.raises(SessionRequiredError, match="agent="):
        server.run(wf, mode="headless")
    run = server.run(wf, agent=lambda request: "question").wait(timeout=30)
    assert run.output == "answered"


def test_mistakes_are_told_before_anything_is_committed(server):
    broken = adding()
    broken.edge("double", "nowhere")
    with pytest.raises(WorkflowDefinitionError, match="nowhere"):
        server.run(broken)
    with pytest.raises(WorkflowDefinitionError, match="mode"):
        server.run(adding(), {"n": 1}, mode="sometimes")
    with pytest.raises(NotFoundError, match="no-such-workflow"):
        server.run("no-such-workflow")
    assert len(server.runs()) == 0


@in_both_places
def test_what_ended_can_be_read_after_the_server_stopped(state_file, tmp_path, placement):
    server = pw.start(database=state_file, project=tmp_path, server=placement)
    done = server.run(adding(), {"n": 1}).wait(timeout=30)
    waits = server.run(asking()).wait(timeout=30)
    server.stop()
    assert (done.status, done.output, waits.status) == ("completed", 4, "waiting")
    assert len(server.steps()) == 3
    assert "stopped" in repr(server)
    with pytest.raises(ServerStoppedError):
        server.run(adding(), {"n": 1})
    with pytest.raises(ServerStoppedError):
        waits.answer(1)
    with pw.open_state(state_file) as state:
        assert state.get_run(done.id).output == 4
        assert state.get_run(done.id).wait().status == "completed"
        with pytest.raises(ServerStoppedError):
            state.get_run(waits.id).wait()
        with pytest.raises(pw.StateFileError, match="opened to be read"):
            state.get_run(waits.id).answer(1)


@in_both_places
def test_waiting_ends_when_the_server_stops(state_file, tmp_path, placement):
    server = pw.start(database=state_file, project=tmp_path, server=placement)
    run = server.run(slow())
    stopping = threading.Timer(0.3, server.stop)
    stopping.start()
    with pytest.raises(ServerStoppedError):
        run.wait(timeout=20)
    stopping.join()
    assert run.status == "queued"


def wait_for(condition, seconds=15.0):
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)
