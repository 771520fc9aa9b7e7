"""Whoever dies, and however: nothing that was started stays, and whoever is left knows it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from pi_workflows_nb.wire.errors import PiWorkflowsError, StateUnavailableError
from tests.runner.nurseries import FOREVER, HERE, alive, finished, gone_within, heard, nursery, spawn

FAMILY = """
def born(act):
    reading, writing = os.pipe()
    if os.fork() == 0:
        act()
        os.write(writing, str(os.getpid()).encode() + b" ")
        time.sleep(1000)
        os._exit(0)
    return os.read(reading, 100).decode()

signal.signal(signal.SIGTERM, signal.SIG_IGN)
lingering = born(lambda: None)
own_session = born(lambda: os.setsid())
own_session_by_exec = str(subprocess.Popen(["setsid", "sleep", "1000"]).pid)
stripped = str(subprocess.Popen(["env", "-i", "sleep", "1000"]).pid)
channel.send(f"{os.getpid()} {lingering} {own_session} {own_session_by_exec} {stripped}".encode())
time.sleep(1000)
"""
SERVER = f"""
import asyncio, json, os, subprocess, sys
if "without pidfds" in sys.argv:
    del os.pidfd_open
sys.path.insert(0, {str(HERE.parents[1])!r})
from tests.runner.nurseries import heard, nursery, spawn

async def check():
    async with nursery() as made:
        said = []
        for number in range(2):
            said += (await heard(await spawn(made, {FAMILY!r}, epoch=f"epoch-{{number}}"))).split()
        if "held" in sys.argv:
            subprocess.Popen(["sleep", "3"], pass_fds=[made._control.fileno()])
        print(json.dumps([made.pid, *map(int, said)]), flush=True)
        await asyncio.sleep(1000)

asyncio.run(check())
"""


@contextmanager
def server(*arguments: str):
    with subprocess.Popen([sys.executable, "-c", SERVER, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_goes_with_the_server(number: signal.Signals):
    with server() as (process, pids):
        assert len(pids) == 11
        assert all(alive(pid) for pid in pids)
        process.send_signal(number)
        assert gone_within(1, *pids), [pid for pid in pids if alive(pid)]


def test_where_there_are_no_pidfds_the_end_of_the_socket_is_enough():
    with server("without pidfds") as (process, pids):
        process.kill()
        assert gone_within(1, *pids)


def test_the_server_needs_no_pidfd_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open")

    async def check() -> None:
        lost = asyncio.Event()
        async with nursery(lost.set) as made:
            child = await spawn(made, FAMILY)
            pids = [int(pid) for pid in (await heard(child)).split()]
            os.kill(made.pid, signal.SIGKILL)
            assert await asyncio.wait_for(child.exited, 2) is None
            assert lost.is_set()
            assert gone_within(1, *pids)
            child.socket.close()

    asyncio.run(check())


def test_a_child_of_the_server_that_holds_its_socket_delays_nothing():
    with server("held") as (process, pids):
        process.kill()
        assert gone_within(1, *pids)


def test_runners_go_with_the_nursery_even_when_no_server_can_act():
    with server() as (process, pids):
        process.send_signal(signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        assert gone_within(1, pids[1], pids[6])
        process.send_signal(signal.SIGCONT)
        assert gone_within(1, *pids)


def test_a_stopped_runner_goes_too():
    async def check() -> None:
        async with nursery() as made:
            child = await spawn(made, FOREVER)
            os.kill(child.pid, signal.SIGSTOP)
            await made.stop()
            assert await child.exited == -signal.SIGKILL
            child.socket.close()

    asyncio.run(check())


def test_when_the_nursery_dies_its_runners_do_and_the_server_is_told():
    async def check() -> None:
        lost = asyncio.Event()
        ends: list[asyncio.Future[int | None]] = []

        def on_lost() -> None:
            assert not any(end.done() for end in ends)
            lost.set()

        async with nursery(on_lost) as made:
            children = [await spawn(made, FAMILY, epoch=f"epoch-{number}") for number in range(3)]
            ends += [child.exited for child in children]
            pids = [int(pid) for child in children for pid in (await heard(child)).split()]
            assert all(alive(pid) for pid in pids)
            began = time.monotonic()
            os.kill(made.pid, signal.SIGKILL)
            await asyncio.wait_for(lost.wait(), 1)
            assert await asyncio.gather(*(child.exited for child in children)) == [None] * 3
            assert time.monotonic() - began < 1
            assert [pid for pid in pids if alive(pid)] == []
            with pytest.raises(StateUnavailableError):
                await spawn(made, "pass")
            with pytest.raises(StateUnavailableError):
                await made.guard(Path("/nowhere"))
            for child in children:
                child.signal(signal.SIGTERM)
                assert await child.stop() is None
                child.socket.close()

    asyncio.run(check())


def test_a_runner_that_was_being_forked_when_the_nursery_died_is_refused():
    async def check() -> None:
        lost: list[bool] = []
        async with nursery(lambda: lost.append(True)) as made:
            os.kill(made.pid, signal.SIGSTOP)
            task = asyncio.create_task(spawn(made, FOREVER))
            await asyncio.sleep(0.01)
            os.kill(made.pid, signal.SIGKILL)
            with pytest.raises(StateUnavailableError):
                await asyncio.wait_for(task, 2)
            assert lost == [True]

    asyncio.run(check())


def test_another_nursery_takes_over():
    async def check() -> None:
        async with nursery() as first:
            os.kill(first.pid, signal.SIGKILL)
            async with nursery() as second:
                assert await finished(second, "channel.send(b'x')") == (0, "x")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "'guest'"),
        ("raise RuntimeError('no luck today')", "no luck today"),
        ("raise SystemExit", "guest"),
    ],
)
def test_a_module_that_cannot_be_preloaded_is_named(body: str, expected: str, tmp_path, monkeypatch):
    (tmp_path / "guest.py").write_text(body)
    lost: list[bool] = []
    monkeypatch.setattr("tests.runner.nurseries.PATH", [*sys.path, str(HERE), str(tmp_path)])

    async def check() -> None:
        with pytest.raises(PiWorkflowsError, match=expected):
            async with nursery(lambda: lost.append(True), preload=["json", "guest"]):
                pass

    asyncio.run(check())
    assert lost == []


def test_a_module_that_ends_the_process_is_no_hang(tmp_path, monkeypatch):
    (tmp_path / "guest.py").write_text("import os; os._exit(3)")
    lost: list[bool] = []
    monkeypatch.setattr("tests.runner.nurseries.PATH", [*sys.path, str(HERE), str(tmp_path)])

    async def check() -> None:
        with pytest.raises(StateUnavailableError):
            async with nursery(lambda: lost.append(True), preload=["guest"]):
                pass

    asyncio.run(check())
    assert lost == []


def test_a_thread_of_an_import_that_ends_by_itself_is_no_reason_to_refuse(tmp_path, monkeypatch):
    (tmp_path / "guest.py").write_text("import threading\nthreading.Timer(0.02, int).start()")
    monkeypatch.setattr("tests.runner.nurseries.PATH", [*sys.path, str(HERE), str(tmp_path)])

    async def check() -> None:
        async with nursery(preload=["guest"]) as made:
            assert await finished(made, "pass") == (0, "")

    asyncio.run(check())


@pytest.mark.slow
def test_pandas_can_be_preloaded():
    async def check() -> None:
        async with nursery(preload=["pandas"]) as made:
            code = "import pandas; channel.send(str(len(pandas.DataFrame({'a': [1, 2]}))).encode())"
            assert await finished(made, code) == (0, "2")

    asyncio.run(check())


def test_a_runner_whose_folder_is_gone_ends_with_a_reason(tmp_path):
    async def check() -> None:
        async with nursery(stderr=tmp_path / "said") as made:
            assert await finished(made, "pass", folder=str(tmp_path / "gone")) == (1, "")

    asyncio.run(check())
    assert "FileNotFoundError" in (tmp_path / "said").read_text()


def test_sockets_of_other_runners_end_with_them():
    """The other end of a channel is open in its runner alone, so the server reads the end of a stream at its end."""

    async def check() -> None:
        async with nursery() as made:
            first = await spawn(made, FOREVER)
            second = await spawn(made, FOREVER)
            assert [await heard(first), await heard(second)] == ["here", "here"]
            first.signal(signal.SIGKILL)
            await first.exited
            assert await heard(first) == ""
            with pytest.raises(BlockingIOError):
                second.socket.recv(1)
            for child in (first, second):
                await child.stop()
                child.socket.close()
            assert isinstance(first.socket, socket.socket)

    asyncio.run(check())
