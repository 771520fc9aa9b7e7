"""Runners and nurseries that die, effects that may have happened, runs that get nowhere."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

import pi_workflows_nb as pw


def _until(true, seconds=20.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.01)
    return found


def gated(recovery, gate, ledger):
    """A workflow whose action writes to the ledger, and the first time waits at the gate after it."""
    wf = pw.Workflow("acts", start_at="before")

    @wf.compute
    def before(ctx):
        return 1

    @wf.action(effect=recovery("ledger.append"))
    def act(ctx):
        with ledger.open("a") as file:
            file.write(ctx.effect.idempotency_key + "\n")
        while not gate.exists():
            time.sleep(0.01)
        return "acted"

    wf.edge("before", "act")
    return wf


def runner_of(rows, run):
    found = rows("SELECT pid FROM run_workers WHERE run_id = ? AND status = 'running' AND pid IS NOT NULL", run.id)
    return found[0][0] if found else None


def test_a_killed_runner_repeats_an_idempotent_effect_under_its_key(server, rows, tmp_path):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    run = server.run(gated(pw.idempotent_effect, gate, ledger))
    _until(ledger.exists)
    os.kill(runner_of(rows, run), signal.SIGKILL)
    gate.touch()
    assert run.wait(timeout=30).output == "acted"
    keys = ledger.read_text().split()
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert rows("SELECT status, attempt_count FROM effects") == [("applied", 2)]
    assert [tuple(row) for row in rows("SELECT count(*) FROM run_steps")] == [(2,)]


@pytest.mark.parametrize("action", ["confirm", "retry"])
def test_a_killed_runner_leaves_a_manual_effect_to_a_person(server, rows, tmp_path, action):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    run = server.run(gated(pw.manual_effect, gate, ledger))
    _until(ledger.exists)
    os.kill(runner_of(rows, run), signal.SIGKILL)
    gate.touch()
    assert run.wait(timeout=30).status == "ambiguous"
    assert len(ledger.read_text().split()) == 1
    effect = server.get_effect(server.effects(status="ambiguous").index[0])
    getattr(effect, action)()
    run.wait(timeout=30, until="end")
    assert run.output == (None if action == "confirm" else "acted")
    assert len(ledger.read_text().split()) == (1 if action == "confirm" else 2)


def test_three_crashes_without_progress_park_a_run(server, rows, tmp_path):
    trace = tmp_path / "trace"
    wf = pw.Workflow("crashes", start_at="die")

    @wf.compute
    def die(ctx):
        with trace.open("a") as file:
            file.write("x")
        if len(trace.read_text()) <= 3:
            os._exit(3)
        return "lived"

    run = server.run(wf).wait(timeout=30)
    view = server._connection.request("run.status", {}, run_id=run.id).receipt
    assert view["controls"] == ["cancel", "resume"]
    assert "without finishing a node" in view["reason"]
    assert rows("SELECT error_code, consecutive_errors FROM run_queue") == [("runnerNoProgress", 3)]
    assert run.resume().wait(timeout=30).output == "lived"


def test_a_killed_nursery_costs_no_run_and_no_commit(server, rows, tmp_path):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    run = server.run(gated(pw.idempotent_effect, gate, ledger))
    _until(ledger.exists)
    runner = psutil.Process(runner_of(rows, run))
    os.kill(runner.ppid(), signal.SIGKILL)
    gate.touch()
    assert run.wait(timeout=30).output == "acted"
    assert not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE
    assert rows("SELECT consecutive_errors FROM run_queue") == [(0,)]


def test_a_stopped_server_parks_its_runs_and_the_next_goes_on(tmp_path, placement):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    first = pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement)
    run = first.run(gated(pw.idempotent_effect, gate, ledger), key="one")
    _until(ledger.exists)
    first.stop()
    with pytest.raises(pw.ServerStoppedError):
        first.run(gated(pw.idempotent_effect, gate, ledger))
    gate.touch()
    second = pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement)
    assert second.get_run(run.id).wait(timeout=30).output == "acted"
    second.stop()


def test_a_server_that_cannot_be_reached_is_told_in_one_sentence(tmp_path):
    import subprocess
    import sys

    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path):
        told = subprocess.run(
            [sys.executable, "-c", f"import pi_workflows_nb as pw; pw.start(database={str(tmp_path / 's.sqlite')!r})"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PI_WORKFLOWS_HOME": str(tmp_path / "other")},
        )
    assert told.returncode == 1
    assert "ServerRunningError" in told.stderr.splitlines()[-1]
    assert f"process {os.getpid()}" in told.stderr


def test_starting_twice_in_one_kernel_gives_the_same_server(tmp_path):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as server:
        assert pw.start(database=tmp_path / "s.sqlite", project=tmp_path) is server


def test_a_process_that_ends_without_a_word_gives_the_file_back(tmp_path, rows_of):
    import subprocess
    import sys

    script = (
        "import pi_workflows_nb as pw, time\n"
        "wf = pw.Workflow('w', start_at='a')\n"
        "wf.compute(lambda ctx: time.sleep(60), name='a')\n"
        f"server = pw.start(database={str(tmp_path / 's.sqlite')!r}, project={str(tmp_path)!r})\n"
        "run = server.run(wf)\n"
        "while not len(server.attempts()):\n"
        "    time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=15)
    assert rows_of(tmp_path / "s.sqlite", "SELECT host_id FROM workflow_host_state") == [(None,)]
    assert rows_of(tmp_path / "s.sqlite", "SELECT status FROM run_queue") == [("parked",)]
    assert rows_of(tmp_path / "s.sqlite", "SELECT status FROM run_workers") == [("cancelled",)]
