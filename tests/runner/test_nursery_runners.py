"""A runner comes to life with what it was given and nothing else, and its end is told exactly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

from pi_workflows_nb.runner import proc
from pi_workflows_nb.wire.errors import StateUnavailableError
from tests.runner.nurseries import FOREVER, HERE, alive, finished, gone_within, heard, nursery, spawn


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("os._exit(75)", 75),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("os.abort()", -6),
    ],
)
def test_the_status_is_exact(code: str, status: int):
    async def check() -> None:
        async with nursery() as made:
            assert (await finished(made, code))[0] == status

    asyncio.run(check())


def test_an_escaped_error_is_a_traceback_and_code_1(tmp_path):
    async def check() -> None:
        async with nursery(stderr=tmp_path / "said") as made:
            assert (await finished(made, "raise RuntimeError('näh')"))[0] == 1

    asyncio.run(check())
    assert "RuntimeError: näh" in (tmp_path / "said").read_text()
    assert (tmp_path / "said").stat().st_mode & 0o777 == 0o600


def test_a_runner_stands_on_its_own(tmp_path):
    code = """
import json, gc, threading
facts = {
    "pid": os.getpid(), "session": os.getsid(0), "group": os.getpgid(0), "folder": os.getcwd(),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "channel": channel.fileno(), "blocking": channel.getblocking(),
    "environment": dict(os.environ), "main": sorted(n for n in vars(sys.modules["__main__"]) if n[0] != "_"),
    "handlers": [str(signal.getsignal(getattr(signal, n))) for n in ("SIGTERM", "SIGHUP", "SIGCHLD", "SIGINT")],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "gc": gc.isenabled(), "argv": sys.argv,
    "modules": [name for name in ("asyncio", "sqlite3", "pandas") if name in sys.modules],
    "stdin": os.readlink("/proc/self/fd/0"),
}
channel.send(json.dumps(facts).encode())
"""

    async def check() -> None:
        async with nursery() as made:
            others = [await spawn(made, FOREVER) for _ in range(2)]
            environment = {"A": "ä\udcff", "PATH": os.environ["PATH"]}
            child = await spawn(made, code, environment=environment, folder=str(tmp_path), epoch="e-1")
            facts = json.loads(await heard(child))
            assert await child.exited == 0
            child.socket.close()
            assert child.identity.startswith("linux:")
            assert facts["pid"] == facts["session"] == facts["group"] == child.pid
            assert facts["folder"] == str(tmp_path)
            assert facts["descriptors"] == [0, 1, 2, facts["channel"]]
            assert facts["blocking"] is True
            assert facts["environment"] == {**environment, "PI_WORKFLOWS_RUNNER_EPOCH": "e-1"}
            assert facts["main"] == []
            assert facts["handlers"][:3] == ["0", "0", "0"] or all("SIG_DFL" in text for text in facts["handlers"][:3])
            assert "default_int_handler" in facts["handlers"][3]
            assert (facts["blocked"], facts["gc"], facts["argv"], facts["modules"]) == (0, True, [""], [])
            assert facts["stdin"] == "/dev/null"
            for other in others:
                assert await other.stop() == -signal.SIGTERM
                other.socket.close()

    asyncio.run(check())


def test_without_an_environment_it_is_that_of_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    code = "import json; channel.send(json.dumps(dict(os.environ)).encode())"

    async def check() -> None:
        async with nursery() as made:
            status, said = await finished(made, code, epoch="e")
            assert status == 0
            assert json.loads(said) == {**os.environ, "PI_WORKFLOWS_RUNNER_EPOCH": "e"}

    asyncio.run(check())


def test_a_large_environment_and_many_runners_at_once_pass():
    environment = {f"V{number}": "x" * 1000 for number in range(300)}

    async def check() -> None:
        async with nursery() as made:
            code = "channel.send(str(len(os.environ)).encode())"
            results = await asyncio.gather(*(finished(made, code, environment=environment) for _ in range(12)))
            assert set(results) == {(0, "301")}

    asyncio.run(check())


def test_fifty_runners_leave_no_descriptor_and_no_process():
    async def check() -> None:
        async with nursery() as made:
            await finished(made, "pass")
            before = os.listdir(f"/proc/{made.pid}/fd"), sorted(os.listdir("/proc/self/fd"))
            for _ in range(5):
                results = await asyncio.gather(*(finished(made, "channel.send(b'x')") for _ in range(10)))
                assert results == [(0, "x")] * 10
            assert (os.listdir(f"/proc/{made.pid}/fd"), sorted(os.listdir("/proc/self/fd"))) == before
            assert proc.read_file(f"/proc/{made.pid}/task/{made.pid}/children") == b""

    asyncio.run(check())


def test_stop_ends_the_group_and_insists():
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"])
channel.send(str(child.pid).encode())
time.sleep(1000)
"""

    async def check() -> None:
        async with nursery() as made:
            child = await spawn(made, code)
            sleeper = int(await heard(child))
            began = time.monotonic()
            assert await child.stop(grace=0.2) == -signal.SIGKILL
            assert 0.15 < time.monotonic() - began < 1.5
            assert not alive(sleeper)
            child.signal(signal.SIGKILL)
            child.socket.close()

    asyncio.run(check())


def test_a_signal_finds_a_runner_that_was_just_born():
    async def check() -> None:
        async with nursery() as made:
            for _ in range(10):
                child = await spawn(made, "time.sleep(1000)")
                child.signal(signal.SIGTERM)
                assert await asyncio.wait_for(child.exited, 1.5) == -signal.SIGTERM
                child.socket.close()

    asyncio.run(check())


def test_what_a_runner_leaves_is_gone_when_its_end_is_told():
    code = """
def fork(act):
    if os.fork() == 0:
        act()
        time.sleep(1000)
        os._exit(0)
fork(lambda: None)                                      # a lingering fork in the group
fork(lambda: os.setsid())                               # one in a session of its own
fork(lambda: (os.setsid(), fork(lambda: os.setsid())))  # and its child, in yet another
subprocess.run(["sh", "-c", "env -i setsid sleep 1000 & sleep 1000 &"])
listed = subprocess.check_output(["pgrep", "-P", str(os.getpid())]).decode().split()
time.sleep(0.05)
channel.send(b"ready"); channel.recv(1)
"""

    def descendants(of: int) -> set[int]:
        stats = [stat for pid in proc.all_pids() if (stat := proc.read_stat(pid)) is not None]
        found = {of}
        while more := {stat.pid for stat in stats if stat.parent in found} - found:
            found |= more
        return found - {of}

    async def check() -> None:
        async with nursery() as made:
            bystander = await spawn(made, FOREVER)
            child = await spawn(made, code)
            assert await heard(child) == "ready"
            left = descendants(child.pid)
            assert len(left) >= 6
            child.socket.send(b"x")
            assert await asyncio.wait_for(child.exited, 5) == 0
            assert [pid for pid in left if alive(pid)] == []
            assert alive(bystander.pid)
            child.socket.close()
            await bystander.stop()
            bystander.socket.close()

    asyncio.run(check())


def test_random_numbers_differ_between_runners():
    async def check() -> None:
        async with nursery(preload=["random", "numpy"]) as made:
            code = "import random, numpy; channel.send(repr((random.random(), numpy.random.random())).encode())"
            said = [(await finished(made, code))[1] for _ in range(2)]
            assert len({number for pair in said for number in eval(pair.replace("np.float64", "float"))}) == 4

    asyncio.run(check())


def test_a_cancelled_spawn_leaves_no_runner():
    async def check() -> None:
        async with nursery() as made:
            os.kill(made.pid, signal.SIGSTOP)
            task = asyncio.create_task(spawn(made, FOREVER))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            os.kill(made.pid, signal.SIGCONT)
            # Commands are followed in order: when the second of these has ended, the kill was long done.
            assert await finished(made, "pass") == (0, "")
            assert await finished(made, "pass") == (0, "")
            assert proc.read_file(f"/proc/{made.pid}/task/{made.pid}/children") == b""

    asyncio.run(check())


def test_no_runner_after_stop():
    async def check() -> None:
        async with nursery() as made:
            child = await spawn(made, FOREVER)
            await made.stop()
            assert await child.exited == -signal.SIGKILL
            with pytest.raises(StateUnavailableError):
                await spawn(made, "pass")
            await made.unguard()
            child.socket.close()

    asyncio.run(check())


def test_a_runner_starts_quickly():
    """Not a benchmark: far above what it takes, far below an exec of Python."""

    async def check() -> list[float]:
        took = []
        async with nursery() as made:
            for _ in range(30):
                began = time.monotonic()
                child = await spawn(made, "channel.send(repr(time.monotonic()).encode())")
                took.append(float(await heard(child)) - began)
                await child.exited
                child.socket.close()
        return took

    took = asyncio.run(check())
    print(f"spawn to first instruction: median {statistics.median(took) * 1000:.2f} ms")
    assert statistics.median(took) < 0.02


def test_it_survives_what_a_kernel_does_to_its_group():
    """Interrupts and hang-ups are sent to process groups; the nursery is in none of the kernel's, and ignores them."""

    async def check() -> None:
        async with nursery() as made:
            assert os.getsid(made.pid) == made.pid
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(made.pid, number)
            assert await finished(made, "os.kill(os.getpid(), signal.SIGTERM)") == (-signal.SIGTERM, "")

    asyncio.run(check())


def test_another_folder_and_a_path_of_ones_own(tmp_path):
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1]); from tests.runner.nurseries import *\n"
        "async def check():\n"
        "    async with nursery() as made: print(await finished(made, 'channel.send(sys.path[0].encode())'))\n"
        "asyncio.run(check())"
    )
    root = str(HERE.parents[1])
    said = subprocess.run(
        [sys.executable, "-c", program, root], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == repr((0, root))


def test_the_end_is_no_end_of_stream():
    """A runner that closes its channel lives on; one whose fork keeps the channel open has ended."""

    async def check() -> None:
        async with nursery() as made:
            child = await spawn(made, "channel.close(); time.sleep(1000)")
            assert await heard(child) == ""
            await asyncio.sleep(0.02)
            assert not child.exited.done()
            child.signal(signal.SIGKILL)
            assert await child.exited == -signal.SIGKILL
            child.socket.close()
            assert gone_within(1, child.pid)

    asyncio.run(check())
