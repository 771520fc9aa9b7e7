"""The claim under which a pass works: renewed while it lasts, and no two passes over one resource when it is lost."""

from __future__ import annotations

import time

import psutil
import pytest

from pi_workflows_nb.resource_managers import passes
from pi_workflows_nb.server.resource_runner_supervisor import ResourceRunnerSupervisor
from pi_workflows_nb.wire.errors import StateUnavailableError

ALONE = """
    import fcntl
    m = pw.ResourceManager("box")

    @m.reconcile
    def reconcile(ctx, resource):
        with open(here / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(here / "passes", "a") as file:
                print(os.getpid(), file=file, flush=True)
            while not (here / "gate").exists():
                time.sleep(0.01)
            return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
"""
EXPIRY = "SELECT expires_at FROM leases JOIN controller_resources USING (resource_id) WHERE owner_type IS NOT NULL"


@pytest.fixture
def placement():
    """In this process, where a claim can be made shorter."""
    return "thread"


@pytest.fixture
def begun(server, write, until):
    """A pass that goes on until the file `gate` is there: its resource, and the ids of all passes so far."""
    write("box", ALONE)
    resource = server.resources.apply("box", "one")
    path = server.project / "passes"
    until(path.exists)
    return resource, lambda: [int(line) for line in path.read_text().split()]


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(passes, "LEASE_MS", 2400)


def test_it_is_renewed_while_the_pass_goes_on(short, server, begun, until, rows):
    resource, pids = begun
    seen = set()
    until(lambda: seen.update(rows(EXPIRY)) or len(seen) >= 3)
    assert len(pids()) == 1
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
    history = list(resource.events()["event_type"])
    assert history.count("lease.claimed") == history.count("reconcile_finished") == 1
    assert "lease.renewed" not in history, "renewing leaves no event"


def test_one_that_ran_out_is_not_taken_beside_its_pass(short, server, begun, until, rows, monkeypatch, types):
    resource, pids = begun
    with monkeypatch.context() as patched:

        def fail(supervisor, transaction):
            raise StateUnavailableError("the disk is full")

        patched.setattr(ResourceRunnerSupervisor, "renew", fail)
        until(lambda: rows(EXPIRY)[0][0] < time.time() * 1000 - 1000)
        assert len(pids()) == 1
        assert psutil.pid_exists(pids()[0])
    until(lambda: len(pids()) == 2)
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
    assert types(resource).count("reconcile_started") == 2
    assert not {"reconcile_failed", "reconcile_conflict"} & set(types(resource)), (
        "the second began when the first was gone"
    )


def test_a_process_that_does_not_leave_after_its_pass_is_killed(server, write, until, types):
    write(
        "box",
        """
        from pi_workflows_nb.runner import reconcile_context
        real = reconcile_context.Server.ask

        def ask(self, operation, payload):
            if operation == "runner.exiting":
                (here / "stays").write_text(str(os.getpid()))
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    time.sleep(1)
            return real(self, operation, payload)

        reconcile_context.Server.ask = ask
        m = pw.ResourceManager("box", timeout=0.5, concurrency=1)

        @m.reconcile
        def reconcile(ctx, resource):
            return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    first = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    server.resources.apply("box", "two").wait_for("Ready", timeout=60)
    assert types(first).count("reconcile_finished") == 1
    assert "reconcile_failed" not in types(first)
