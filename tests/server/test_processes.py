"""Processes are known by more than their number, and nothing but what was meant is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from pi_workflows_nb.runner import proc
from pi_workflows_nb.server import processes
from pi_workflows_nb.server.processes import Leftover
from tests.runner.nurseries import alive, gone_within

SESSION = """
import os, signal, subprocess, sys, time
sleeper = subprocess.Popen(["env", "-i", "sleep", "1000"])
print(sleeper.pid, flush=True)
time.sleep(1000)
"""


@contextmanager
def runner_like(epoch: str = "", code: str = SESSION):
    """A process with a session of its own and a grandchild in it, whose environment tells nothing."""
    environment = {**os.environ, **({proc.EPOCH_VARIABLE: epoch} if epoch else {})}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def identity_of(pid: int) -> str:
    identity = processes.start_identity(pid)
    assert identity is not None
    return identity


def earlier(identity: str) -> str:
    shared, _, ticks = identity.rpartition(":")
    return f"{shared}:{int(ticks) - 1}"


def test_an_identity_names_boot_namespace_and_start():
    system, boot, namespace, ticks = identity_of(os.getpid()).split(":")
    assert system == "linux"
    assert len(boot) == 36
    assert namespace.isdigit()
    assert ticks.isdigit()
    assert identity_of(os.getpid()) == identity_of(os.getpid()) != identity_of(1)


def test_a_process_is_alive_until_it_ended():
    with runner_like() as (process, sleeper):
        identity = identity_of(process.pid)
        assert processes.is_alive(process.pid, identity) is True
        assert processes.is_alive(process.pid, earlier(identity)) is False
        assert processes.is_alive(sleeper, identity_of(sleeper)) is True
        os.kill(sleeper, signal.SIGKILL)
        process.kill()
        assert gone_within(1, process.pid)
        # It still has its number, as nobody collected it, but it does nothing any more.
        assert processes.is_alive(process.pid, identity) is False
        process.wait()
        assert processes.is_alive(process.pid, identity) is False


def test_of_another_boot_or_namespace_nothing_is_known():
    system, boot, namespace, ticks = identity_of(os.getpid()).split(":")
    for other in (f"{system}:{boot[::-1]}:{namespace}:{ticks}", f"{system}:{boot}:1:{ticks}", "unknown", ""):
        assert processes.is_alive(os.getpid(), other) is None
        assert not processes.same_boot(other)
    assert processes.same_boot(identity_of(os.getpid()))


def test_a_name_with_parentheses_and_spaces_is_read_right(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "1000"]) as process:
        stat = proc.read_stat(process.pid)
        process.kill()
    assert stat is not None
    assert stat.parent == os.getpid()


def test_a_process_whose_first_thread_ended_is_alive():
    code = (
        "import ctypes, threading, time\n"
        "print(0, flush=True)\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with runner_like(code=code) as (process, _):
        until = time.monotonic() + 2
        while (stat := proc.read_stat(process.pid)) is not None and stat.state != "Z" and time.monotonic() < until:
            time.sleep(0.005)
        assert stat is not None
        assert stat.state == "Z"
        assert processes.is_alive(process.pid, identity_of(process.pid)) is True
        assert processes.end_leftovers(process.pid, identity_of(process.pid), "") == [process.pid]
        assert processes.is_alive(process.pid, identity_of(process.pid)) is False


def test_a_leftover_goes_with_its_session():
    with runner_like() as (process, sleeper), runner_like() as (other, other_sleeper):
        identity = identity_of(process.pid)
        assert processes.end_leftovers(process.pid, identity, "an-epoch") == sorted([process.pid, sleeper])
        assert not alive(process.pid)
        assert not alive(sleeper)
        assert alive(other.pid)
        assert processes.end_leftovers(process.pid, identity, "an-epoch") == []
        assert processes.end_leftovers(other.pid, identity_of(other.pid), "") == sorted([other.pid, other_sleeper])


def test_the_rest_of_a_session_goes_when_its_leader_is_gone():
    with runner_like() as (process, sleeper):
        identity = identity_of(process.pid)
        process.kill()
        process.wait()
        assert processes.end_leftovers(process.pid, identity, "") == [sleeper]


def test_a_reused_number_is_nobody_we_know():
    with runner_like() as (process, sleeper):
        # Recorded was a process of the same number that started earlier.
        assert processes.end_leftovers(process.pid, earlier(identity_of(process.pid)), "an-epoch") == []
        assert alive(process.pid)
        assert alive(sleeper)
        assert processes.end_leftovers(process.pid, identity_of(process.pid), "") == sorted([process.pid, sleeper])


def test_another_boot_has_no_leftovers_here():
    with runner_like("epoch-1") as (process, sleeper):
        system, boot, namespace, ticks = identity_of(process.pid).split(":")
        assert processes.end_leftovers(process.pid, f"{system}:{boot[::-1]}:{namespace}:{ticks}", "epoch-1") == []
        assert alive(process.pid)
        processes.end_leftovers(process.pid, identity_of(process.pid), "")
        assert not alive(sleeper)


def test_an_epoch_is_enough():
    with runner_like("epoch-1") as (process, sleeper), runner_like("epoch-10") as (other, other_sleeper):
        # The sleeper's environment is empty, and without a recorded pid its session means nothing.
        assert processes.end_leftovers(None, None, "epoch-1") == [process.pid]
        assert alive(other.pid)
        assert alive(sleeper)
        os.kill(sleeper, signal.SIGKILL)
        found = processes.end_all_leftovers(
            [Leftover(None, None, "epoch-10"), Leftover(other.pid, identity_of(other.pid), "")]
        )
        assert found == sorted([other.pid, other_sleeper])


def test_this_process_is_never_a_leftover():
    assert processes.end_leftovers(os.getpid(), identity_of(os.getpid()), "") == [] or os.getsid(0) == os.getpid()
    with runner_like("epoch-1", "import os; print(os.getpid(), flush=True); import time; time.sleep(1000)") as (one, _):
        program = (
            "import sys; from pi_workflows_nb.server import processes\n"
            "print(processes.end_leftovers(None, None, 'epoch-1'))"
        )
        # It carries the epoch itself, as a server that somebody starts inside a runner would.
        environment = {**os.environ, proc.EPOCH_VARIABLE: "epoch-1"}
        said = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == f"[{one.pid}]"


@pytest.mark.parametrize("epoch", ["", "epoch-1"])
def test_an_unknown_identity_harms_nobody(epoch: str):
    with runner_like() as (process, sleeper):
        assert processes.end_leftovers(process.pid, "unknown", epoch) == []
        assert processes.end_leftovers(0, identity_of(process.pid), epoch) == []
        assert processes.end_leftovers(1, identity_of(1), epoch) == []
        assert alive(process.pid)
        os.kill(sleeper, signal.SIGKILL)
