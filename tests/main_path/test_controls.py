"""Restarts, sessions and a second cancel, from a cell to the rows."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from tests.main_path.test_waits import until


def failing(text="boom"):
    wf = pw.Workflow("fails", start_at="boom")

    @wf.compute
    def boom(ctx):
        raise ValueError(text)

    return wf


def held(gate):
    wf = pw.Workflow("held", start_at="hold")

    @wf.compute
    def hold(ctx):
        while not gate.exists() and not ctx.cancelled.wait(0.01):
            pass
        return 1

    return wf


def test_a_run_that_failed_is_restarted_and_a_second_end_of_the_same_kind_is_enough(server):
    first = server.run(failing(), {"x": 1}).wait(timeout=60)
    again = first.restart()
    assert again.id != first.id
    assert again.wait(timeout=60).status == "failed"
    assert (again.input, first.chain) == ({"x": 1}, [first.id])
    with pytest.raises(pw.ConflictError, match=f"it was, as {again.id}"):
        first.restart()
    with pytest.raises(pw.ConflictError, match="in the same way"):
        again.restart()


def test_what_runs_or_was_cancelled_is_not_restarted(server, tmp_path):
    run = server.run(held(tmp_path / "gate"))
    with pytest.raises(pw.ConflictError, match="not over"):
        run.restart()
    run.cancel()
    with pytest.raises(pw.ConflictError, match="cancelled"):
        run.restart()


def test_a_second_cancel_adopts_the_first_ones_receipt(server, tmp_path):
    run = server.run(held(tmp_path / "gate"))
    until(lambda: run.status == "running")
    connection = server._connection
    first = connection.request("run.cancel", {}, run_id=run.id)
    second = connection.request("run.cancel", {}, run_id=run.id)
    assert (first.outcome, second.outcome) == ("accepted", "adopted")
    assert (second.receipt, second.revision) == (first.receipt, first.revision)


def test_interactive_runs_of_a_session_take_turns(server, tmp_path, rows):
    gate = tmp_path / "gate"
    first, second, third = (server.run(held(gate), mode="interactive") for _ in range(3))
    headless = server.run(held(gate))
    until(lambda: first.status == "running" and headless.status == "running")
    assert "session" in server._link.view(second.id)["reason"]
    assert [second.status, third.status] == ["queued", "queued"]
    assert rows("SELECT count(*) FROM runs WHERE status_detail = 'sessionBusy'") == [(2,)]
    assert rows("SELECT count(DISTINCT origin_session_id) FROM run_bindings WHERE execution_mode = 'interactive'") == [
        (1,)
    ]
    third.cancel()
    gate.touch()
    assert [run.wait(timeout=60).output for run in (first, second, headless)] == [1, 1, 1]
    starts = [rows("SELECT started_at FROM run_queue WHERE run_id = ?", run.id)[0][0] for run in (first, second)]
    ends = rows("SELECT finished_at FROM run_queue WHERE run_id = ?", first.id)[0][0]
    assert starts[0] <= ends <= starts[1]


def test_a_session_is_named_and_stays_itself(server, tmp_path):
    from pi_workflows_nb.notebook.origin_session import origin_session

    assert server.session.id == origin_session(server.project)
    assert origin_session(server.project, "mine") != server.session.id
    assert origin_session(tmp_path, "mine") != origin_session(server.project, "mine")


def test_a_headless_run_that_asks_a_session_is_refused(server):
    wf = pw.Workflow("asks", start_at="who")
    wf.agent(lambda ctx: "who?", name="who")
    with pytest.raises(pw.SessionRequiredError):
        server.run(wf, mode="headless")
