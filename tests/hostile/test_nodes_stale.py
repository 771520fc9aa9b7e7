"""Runners that slept past their claim: what they bring is refused, and their successor alone carries the run."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.hostile.nodes import hostile
from tests.hostile.surroundings import until


@pytest.fixture
def waiting(short_lease, tmp_path):
    """A run whose node waits at a gate and gives its process; its runner, and what all runners wrote down."""
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    run = short_lease.run(
        hostile(f"""
        import os, time
        with open({str(ledger)!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.01)
        return os.getpid()
        """)
    )
    until(ledger.exists)
    runner = psutil.Process(until(lambda: short_lease.pid(run)))
    return run, runner, gate, lambda: [int(line) for line in ledger.read_text().split()]


def written(host, run):
    """All that a file holds of a run which a runner can write."""
    return [
        host.rows(f"SELECT * FROM {table} WHERE run_id = ? ORDER BY rowid", run.id)
        for table in ("node_attempts", "run_steps")
    ] + [
        host.rows(f"SELECT {column} FROM {table} JOIN runs USING (resource_id) WHERE run_id = ?", run.id)
        for column, table in (("revision", "resources"), ("event_id", "events"), ("generation", "leases"))
    ]


def expired(host, run):
    query = "SELECT expires_at FROM leases JOIN runs USING (resource_id) WHERE run_id = ?"
    at = host.rows(query, run.id)[0][0]
    return at is not None and at < time.time() * 1000


def test_a_stale_runner_is_refused_writes_nothing_and_exits(short_lease, waiting):
    run, runner, gate, began = waiting
    nursery = psutil.Process(runner.ppid())
    try:
        runner.suspend()
        # While it cannot pass on that the runner is to be killed, nothing but the refusal stands in its way.
        nursery.suspend()
        gate.touch()
        until(lambda: expired(short_lease, run))
        before = written(short_lease, run)
        runner.resume()
        until(lambda: runner.status() == psutil.STATUS_ZOMBIE)
        assert written(short_lease, run) == before
        assert os.waitstatus_to_exitcode(exit_status(runner.pid)) == 75
        assert began() == [runner.pid]
    finally:
        nursery.resume()
    run.wait(timeout=30)
    successor = began()[1]
    assert run.output == ["ok", successor]
    assert began() == [runner.pid, successor]
    assert short_lease.runners(run) == ["claimLost", "exited"]
    assert short_lease.rows("SELECT count(*) FROM run_steps WHERE run_id = ?", run.id) == [(3,)]
    short_lease.check_gone(run)


def exit_status(pid):
    """The wait status of a process that ended and was not collected yet."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(" ", 1)[1])


def test_a_runner_that_stays_stopped_is_ended_and_succeeded(short_lease, waiting):
    run, runner, gate, began = waiting
    runner.suspend()
    until(lambda: len(began()) == 2)
    assert not runner.is_running()
    gate.touch()
    run.wait(timeout=30)
    assert run.output == ["ok", began()[1]]
    assert short_lease.runners(run) == ["claimLost", "exited"]


def test_a_stop_shorter_than_the_claim_costs_nothing(short_lease, waiting):
    run, runner, gate, _ = waiting
    runner.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    runner.send_signal(signal.SIGCONT)
    gate.touch()
    run.wait(timeout=30)
    assert run.output == ["ok", runner.pid]
    assert short_lease.runners(run) == ["exited"]
