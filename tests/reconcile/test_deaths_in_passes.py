"""A server, a nursery or a runner that dies in a pass: the pass is made again, and never two at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.kernels import kernel

WAITS = """
    m = pw.ResourceManager("box")

    @m.reconcile
    def reconcile(ctx, resource):
        with open(here / "passes", "a") as file:
            print(os.getpid(), file=file, flush=True)
        while not (here / "gate").exists():
            time.sleep(0.01)
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
"""


def passes(folder):
    path = folder / "passes"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_runner_that_is_killed_costs_a_failure(server, write, until, payloads):
    write("box", WAITS)
    resource = server.resources.apply("box", "one")
    (pid,) = until(lambda: passes(server.project))
    os.kill(pid, signal.SIGKILL)
    failed = until(lambda: payloads(resource, "reconcile_failed"))
    assert "SIGKILL" in failed[0]["error"]
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
    assert len(passes(server.project)) == 2


def test_the_end_of_the_nursery_costs_nothing_but_the_pass(server, write, until, types, rows):
    write("box", WAITS)
    resource = server.resources.apply("box", "one")
    (pid,) = until(lambda: passes(server.project))
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    until(lambda: len(passes(server.project)) == 2)
    assert gone(pid)
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
    assert "reconcile_failed" not in types(resource), "it was not the manager's fault"


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_kernel_or_server_that_is_killed_in_a_pass_is_succeeded(tmp_path, placement, until):
    folder = tmp_path / ".pi" / "resource-managers"
    folder.mkdir(parents=True)
    head = "import os, pathlib, time\nimport pi_workflows_nb as pw\nhere = pathlib.Path.cwd()\n"
    (folder / "box.resource_manager.py").write_text(head + WAITS.replace("\n    ", "\n"))
    start = f"import pi_workflows_nb as pw\nserver = pw.start(database='s.sqlite', server={placement!r})"
    with kernel(tmp_path) as first:
        first.run(f"{start}\nr = server.resources.apply('box', 'one', 5)")
        (runner,) = until(lambda: passes(tmp_path))
        pid = int(first.run("print(server.status()['pid'])"))
        first.kill() if placement == "thread" else os.kill(pid, signal.SIGKILL)
    with kernel(tmp_path) as second:
        second.run(f"{start}\nr = server.resources.get('box', 'one')")
        until(lambda: len(passes(tmp_path)) == 2)
        assert gone(runner), "before the next pass began"
        (tmp_path / "gate").touch()
        second.run("r.wait_for('Ready', timeout=60).wait_settled(60)")
        look = "print(r.spec, len(server.verify()), len(server.resource_queue()), server.leases()['held'].sum())"
        assert second.run(look) == "5 0 0 0\n"
        second.run("server.stop()")


def test_a_pass_whose_claim_was_lost_writes_nothing(server, write, until, tmp_path, again, types):
    """Stopped beyond the claim, then released by the next server: what it says afterwards is not heard."""
    write("box", WAITS)
    server.resources.apply("box", "one")
    (pid,) = until(lambda: passes(server.project))
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert gone(pid)
    served = again()
    (server.project / "gate").touch()
    found = served.resources.get("box", "one").wait_for("Ready", timeout=60)
    assert types(found).count("reconcile_finished") == 1
    assert not Path(f"/proc/{pid}").exists() or gone(pid)
