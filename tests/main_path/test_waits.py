"""Runs that sleep or wait for events: they hold no process, outlive their server, and go on by themselves."""

from __future__ import annotations

import time

import pytest

import pi_workflows_nb as pw


def napping(seconds):
    wf = pw.Workflow("naps", start_at="first")
    wf.compute(lambda ctx: 1, name="first")
    wf.sleep("nap", seconds)
    wf.compute(lambda ctx: "awake", name="after")
    wf.edge("first", "nap")
    wf.edge("nap", "after")
    return wf


def waiting(timeout=None, **more):
    wf = pw.Workflow("waits", start_at="gate")
    wf.wait_event("gate", "go", timeout=timeout, **more)
    wf.compute(lambda ctx: ctx.outputs["gate"], name="came")
    wf.compute(lambda ctx: ctx.results["gate"]["error"], name="late")
    wf.edge("gate", switch="$result.outcome", cases={"ok": "came", "timed_out": "late"})
    return wf


def until(true, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.02)


def waits(run):
    until(lambda: run.status == "waiting")
    return run


def view(server, run):
    return server._link.view(run.chain[-1])


def asleep(server, run):
    return view(server, run)["activity"] == "asleep at nap"


def test_a_sleeping_run_holds_no_process_and_goes_on(server):
    run = server.run(napping(1.5))
    until(lambda: asleep(server, run))
    until(lambda: server.status()["runners"] == 0)
    assert run.wait(timeout=60).output == "awake"
    assert list(server.steps(run=run.id).node_id) == ["first", "nap", "after"]


def test_a_sleep_goes_on_through_a_pause_and_is_not_cut_short(server, rows):
    run = server.run(napping(3600))
    until(lambda: asleep(server, run))
    due = rows("SELECT available_at FROM run_queue")
    assert run.pause().status == "paused"
    assert asleep(server, run.resume())
    assert rows("SELECT available_at FROM run_queue") == due
    assert run.cancel().status == "cancelled"


def test_a_sleep_that_ended_while_nobody_served_is_over_at_the_next_start(tmp_path, placement):
    database = tmp_path / "s.sqlite"
    with pw.start(database=database, project=tmp_path, server=placement) as server:
        run = server.run(napping(2))
        until(lambda: asleep(server, run))
    time.sleep(2)
    with pw.start(database=database, project=tmp_path, server=placement) as server:
        assert server.get_run(run.id).wait(timeout=60).output == "awake"


def test_an_event_answers_every_run_of_the_project_that_waits_for_it(server, tmp_path):
    runs = [server.run(waiting()) for _ in range(2)]
    other = pw.Workflow("other", start_at="gate")
    other.wait_event("gate", "stay")
    stays = server.run(other)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    foreign = pw.start(database=server.database, project=elsewhere, server=server.placement).run(waiting())
    for run in [*runs, stays, foreign]:
        waits(run)
    assert server.signal("nobody") == 0
    assert server.signal("go", {"n": 1}) == 2
    assert [run.wait(timeout=60).output for run in runs] == [{"n": 1}, {"n": 1}]
    assert (stays.status, foreign.status) == ("waiting", "waiting")
    assert server.signal("go") == 0


def test_an_event_can_be_given_by_hand_and_is_looked_at(server):
    def positive(value):
        if value < 1:
            raise ValueError("above 0, please")
        return value

    run = waits(server.run(waiting(validate=positive)))
    assert "server.signal" in view(server, run)["reason"]
    with pytest.raises(pw.WorkflowInputError, match="above 0"):
        server.signal("go", 0)
    with pytest.raises(pw.WorkflowInputError, match="above 0"):
        run.answer(0)
    run.pause()
    assert server.signal("go", 1) == 0
    with pytest.raises(pw.ConflictError, match="it is paused"):
        run.answer(1)
    assert run.resume().status == "waiting"
    assert run.answer(1).wait(timeout=60).output == 1
    assert len(run.chain) == 2


def test_an_event_that_does_not_come_in_time_is_an_outcome(server):
    run = server.run(waiting(timeout=0.5)).wait(timeout=60, until="end")
    assert run.output.endswith("no event came within 0.5 s")
    assert run.chain == [run.id]
    wf = pw.Workflow("unrouted", start_at="gate")
    wf.wait_event("gate", timeout=0.2)
    assert server.run(wf).wait(timeout=60, until="end").status == "timed_out"


def test_the_time_for_an_event_runs_while_nobody_serves(tmp_path, placement):
    database = tmp_path / "s.sqlite"
    with pw.start(database=database, project=tmp_path, server=placement) as server:
        run = waits(server.run(waiting(timeout=2)))
    time.sleep(2)
    with pw.start(database=database, project=tmp_path, server=placement) as server:
        assert "no event came" in server.get_run(run.id).wait(timeout=60, until="end").output


def test_a_long_pause_before_another_try_holds_no_process(server, tmp_path):
    seen = tmp_path / "seen"
    wf = pw.Workflow("tries", start_at="flaky")

    @wf.compute(retries=pw.retry(times=2, backoff=(6, 1, 6)))
    def flaky(ctx):
        if not seen.exists():
            seen.touch()
            raise ConnectionError("not yet")
        return "there"

    run = server.run(wf)
    until(lambda: seen.exists() and server.status()["runners"] == 0)
    assert run.status == "queued"
    assert run.wait(timeout=60).output == "there"
