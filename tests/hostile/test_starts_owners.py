"""One owner for a file, whoever starts, whenever: in one kernel, in two at once, after a kill or a reboot."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import psutil
import pytest

import pi_workflows_nb as pw
from tests.hostile.surroundings import gated, sound, until

KERNEL = """
import json, sys, time
import pi_workflows_nb as pw
import pi_workflows_nb.notebook.server, pi_workflows_nb.server.local_connection, pi_workflows_nb.client.connection
print("ready", flush=True)
for line in sys.stdin:
    database, placement, moment = json.loads(line)
    time.sleep(max(0, moment - time.time()))
    try:
        server = pw.start(database=database, project="/tmp", server=placement)
        said = [server.status()["pid"], server.status()["epoch"], server.placement]
    except pw.PiWorkflowsError as error:
        server, said = None, f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
    try:
        if server is not None:
            server.stop()
    except pw.PiWorkflowsError:
        pass
    print(json.dumps("stopped"), flush=True)
"""

HOLDER = """
import sys
from pathlib import Path
from pi_workflows_nb.server.ownership import takeover_lock
with takeover_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


class Other:
    """Another kernel, as far as the server is concerned."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n"

    def start(self, database, placement, moment=0.0):
        self.process.stdin.write(json.dumps([str(database), placement, moment]) + "\n")
        self.process.stdin.flush()

    def said(self):
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.said() == "stopped"

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(20)


@contextmanager
def others(count):
    made = [Other() for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.end()


def test_a_second_start_in_one_kernel_gives_the_same_server(tmp_path, placement, monkeypatch):
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as server:
        assert pw.start(database=tmp_path / "s.sqlite", project=tmp_path) is server
        monkeypatch.chdir(tmp_path)
        assert pw.start(database="./s.sqlite") is server
        other = tmp_path / "other"
        other.mkdir()
        second = pw.start(database=tmp_path / "s.sqlite", project=other)
        assert second is not server
        assert second.status()["epoch"] == server.status()["epoch"] == 1
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as again:
        assert again is not server
        assert again.status()["epoch"] == 2


@pytest.mark.parametrize("first", ["thread", "process"])
@pytest.mark.parametrize("second", ["thread", "process"])
def test_of_two_kernels_that_start_at_the_same_moment_one_serves(tmp_path, first, second):
    with others(2) as kernels:
        for number, apart in enumerate((0.0, 0.01, 0.05)):
            path = tmp_path / f"{number}.sqlite"
            moment = time.time() + 0.1
            kernels[0].start(path, first, moment)
            kernels[1].start(path, second, moment + apart)
            said = [one.said() for one in kernels]
            assert len({tuple(one[:2]) for one in said}) == 1, said
            assert all(epoch == 1 for _, epoch, _ in said)
            places = sorted(place for *_, place in said)
            assert places in (["kernel", "thread"], ["process", "process"])
            for one in kernels:
                one.stop()
            sound(path)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_is_replaced_at_once(tmp_path, placement, signal_number):
    path = tmp_path / "s.sqlite"
    with others(1) as (kernel,):
        kernel.start(path, placement)
        pid, epoch, _ = kernel.said()
        os.kill(kernel.process.pid, signal_number)
        kernel.process.wait()
        if placement == "process":
            with pw.start(database=path, project=tmp_path) as server:
                assert server.status()["pid"] == pid, "the server outlives a kernel, and is attached to"
                psutil.Process(pid).kill()
                until(lambda: server.status()["epoch"] == epoch + 1)
                epoch += 1
            assert not server.alive
        began = time.monotonic()
        with pw.start(database=path, project=tmp_path, server=placement) as server:
            assert time.monotonic() - began < 10
            assert server.status()["epoch"] == epoch + 1
    sound(path)


@pytest.fixture
def of_another_boot(tmp_path):
    """A file whose owner and runner were recorded before a reboot, under the numbers of processes that live now."""
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    path = tmp_path / "s.sqlite"
    with pw.start(database=path, project=tmp_path) as server:
        run = server.run(gated(gate, ledger))
        until(lambda: len(server.steps()) == 1)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)

    def record(lease_ms):
        now = int(time.time() * 1000)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "UPDATE workflow_host_state SET host_id = 'host-x', token_hash = zeroblob(32), pid = ?,"
                " process_start_identity = '00000000-0000-0000-0000-000000000000:4026531836:17', started_at = ?,"
                " heartbeat_at = ?, expires_at = ?",
                (os.getpid(), now, now, now + lease_ms),
            )
            connection.execute(
                "UPDATE run_workers SET pid = ?,"
                " process_start_identity = '00000000-0000-0000-0000-000000000000:4026531836:18',"
                " status = 'running', finished_at = NULL, exit_code = NULL, signal = NULL, diagnostic_hash = NULL",
                (bystander.pid,),
            )
            connection.commit()
        gate.touch()
        return path, run.id, bystander

    yield record
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("lease_ms", [-1000, 1500])
def test_an_owner_from_before_a_reboot_is_replaced_after_its_lease(of_another_boot, tmp_path, placement, lease_ms):
    path, run_id, bystander = of_another_boot(lease_ms)
    began = time.monotonic()
    with pw.start(database=path, project=tmp_path, server=placement) as server:
        assert max(0, lease_ms / 1000 - 0.5) < time.monotonic() - began < 10
        assert server.get_run(run_id).wait(timeout=30).output == "third"
        assert server.status()["epoch"] == 2
    assert bystander.poll() is None, "a process that has the number of a runner from before the reboot was ended"
    sound(path)


def test_an_interrupt_while_waiting_for_a_lease_leaves_the_kernel_free(of_another_boot, tmp_path):
    path, _, _ = of_another_boot(3000)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pw.start(database=path, project=tmp_path)
    assert time.monotonic() - began < 2
    timer.join()
    until(lambda: not any("pi-workflows-nb server" in one.name for one in threading.enumerate()), 20)
    with pw.start(database=path, project=tmp_path) as server:
        assert server.alive
    sound(path)


def test_a_start_that_is_stuck_is_told_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr("pi_workflows_nb.server.ownership.LOCK_WAIT_SECONDS", 0.2)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "s.sqlite.d" / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(pw.ServerRunningError, match="another start"):
            pw.start(database=tmp_path / "s.sqlite", project=tmp_path)
        holder.kill()
    # A mutex of the dead is nobody's.
    pw.start(database=tmp_path / "s.sqlite", project=tmp_path).stop()
