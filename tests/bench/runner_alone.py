"""How fast a runner is when its server costs nothing: `python -m tests.bench.runner_alone [steps]`.

The other end accepts everything at once and stores nothing, so what is measured is the engine, the frames, and the
hand-over of each message between two processes. `engine` is the engine alone, over a store that forgets.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from pi_workflows_nb.wire.runner_messages import RESPONSE_SCHEMA, RunnerMessage, RunnerResponse, Value, encode
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.local_store import LocalStore
from pi_workflows_nb.workflows.sources import load_text
from tests.runner.peer import Peer

SOURCE = """
import pi_workflows_nb as pw
wf = pw.Workflow("steps", start_at="a", max_steps={steps})
wf.compute(name="a")(lambda ctx: {{"n": 1}})
wf.compute(name="b")(lambda ctx: {{"n": 2}})
wf.edge("a", "b")
wf.edge("b", "a")
"""


class Forgetful(LocalStore):
    """Costs nothing."""

    def propose(self, transition):
        pass


class Yes(Peer):
    """Accepts everything with as little work as possible."""

    def serve(self, until=lambda message: False):
        decode, channel = msgspec.json.Decoder(RunnerMessage).decode, self.socket
        channel.settimeout(None)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        rest = self.rest
        while data := channel.recv(1 << 20):
            *lines, rest = (rest + data).split(b"\n")
            answers = []
            for line in lines:
                message = decode(line)
                result = None
                if message.operation == "store.initializeRun":
                    result = self.state
                answers.append(
                    encode(RunnerResponse(None, message.message_id, "accepted", _value(result), 10, RESPONSE_SCHEMA))
                )
            channel.sendall(b"\n".join(answers) + b"\n")


def _value(result):
    return None if result is None else Value(inline=msgspec.Raw(json.dumps(result).encode()))


def engine(steps):
    workflow = load_text(SOURCE.format(steps=steps))
    began, cpu = time.perf_counter(), time.process_time()
    WorkflowEngine(store=Forgetful()).run(workflow)
    return (time.perf_counter() - began) / steps, (time.process_time() - cpu) / steps


def children():
    """CPU seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def runner(steps, window):
    """Wall seconds a step, and CPU seconds of the whole process."""
    cpu = children()
    with tempfile.TemporaryDirectory() as folder, Yes(Path(folder), SOURCE.format(steps=steps), window=window) as peer:
        peer.shake_hands()
        began = time.perf_counter()
        peer.serve()
        took = time.perf_counter() - began
        if peer.exit_code():
            raise SystemExit((Path(folder) / "epoch.log").read_text())
    return took / steps, children() - cpu


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {steps} steps, best of 3")
    wall, cpu = min(engine(steps) for _ in range(3))
    print(f"engine alone       {wall * 1e6:6.1f} µs a step, {cpu * 1e6:6.1f} µs of CPU")
    for window in (16, 1):
        start = min(runner(1, window)[1] for _ in range(3))
        wall, cpu = min(runner(steps, window) for _ in range(3))
        cpu = (cpu - start) / steps
        shown = f"{wall * 1e6:6.1f} µs a step, {cpu * 1e6:6.1f} µs of CPU, {1 / wall:6.0f} steps/s"
        print(f"runner, window {window:2}  {shown}")


if __name__ == "__main__":
    main()
