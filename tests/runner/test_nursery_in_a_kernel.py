"""The nursery is started from a thread of somebody's kernel: interrupted, debugged and killed like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.runner.nurseries import HERE, alive, gone_within

ROOT = str(HERE.parents[1])
CELL = f"""
import asyncio, json, sys, threading
sys.path.insert(0, {ROOT!r})
from tests.runner.nurseries import *

pids, stopped = [], threading.Event()

async def serve():
    async with nursery() as made:
        child = await spawn(made, FOREVER)
        await heard(child)
        pids.extend([made.pid, child.pid])
        pids.append(await finished(made, "channel.send(b'x')"))
        ready.set()
        await asyncio.to_thread(stopped.wait)
        child.socket.close()

ready = threading.Event()
thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
thread.start()
ready.wait(20)
print(json.dumps(pids))
"""


def test_the_debugger_of_a_notebook_stays_out_of_it(tmp_path):
    pytest.importorskip("debugpy")
    program = "import debugpy; debugpy.listen(('127.0.0.1', 0))\n" + CELL
    said = subprocess.run(
        [sys.executable, "-Xfrozen_modules=off", "-c", program + "\nstopped.set(); thread.join()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)[2] == [0, "x"]


@pytest.fixture
def kernel(tmp_path):
    manager = pytest.importorskip("jupyter_client").KernelManager()
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=30)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()
    manager.context.destroy()


def run_cell(client, code: str) -> str:
    said = []

    def hear(message) -> None:
        if message["header"]["msg_type"] in {"stream", "error"}:
            said.append(message["content"].get("text") or "\n".join(message["content"]["traceback"]))

    client.execute_interactive(code, timeout=30, output_hook=hear)
    return "".join(said)


def test_it_lives_through_an_interrupt_and_dies_with_the_kernel(kernel):
    manager, client = kernel
    nursery, runner, result = json.loads(run_cell(client, CELL))
    assert result == [0, "x"]
    manager.interrupt_kernel()
    assert "1\n" in run_cell(client, "print(1)")
    os.killpg(os.getpgid(manager.provisioner.process.pid), signal.SIGINT)
    assert run_cell(client, "print(2)") == "2\n"
    assert alive(nursery)
    assert alive(runner)
    manager.signal_kernel(signal.SIGKILL)
    assert gone_within(1, nursery, runner)
