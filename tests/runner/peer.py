"""The server's end of a runner's channel, without a server: a real process at the other end, and answers as they come.

The runner is forked by a small process, as the nursery does it, and that process gives its wait status back.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.identities import new_id
from pi_workflows_nb.wire.runner_messages import COMMAND_SCHEMA, INLINE_BYTES, LAUNCH_SCHEMA, RESPONSE_SCHEMA
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot
from pi_workflows_nb.workflows.sources import freeze, load_text

ROOT = Path(__file__).parents[2]
FORK = """
import os, socket, sys
from pi_workflows_nb.runner import entry
pid = os.fork()
if pid == 0:
    os.setsid()
    entry.main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3])
os.close(int(sys.argv[1]))
print(pid, flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Peer:
    """One runner and the talk with it. `source` is the text of a workflow file."""

    def __init__(self, folder, source="", *, mode="run", window=16, state=None, agent=None):
        self.folder = Path(folder)
        self.window = window
        self.messages = []
        self.revision = 10
        self.contents = {}
        self.offered = {}
        self.log = self.folder / "epoch.log"
        self.run_id = "run-1"
        self.epoch = new_id()
        if mode == "run":
            workflow = load_text(source)
            self.frozen = freeze(None, text=source, agent=agent)
            self.digest = definition_digest(definition_snapshot(workflow)).hex()
            self.state = state or {
                "attemptCounts": {},
                "input": None,
                "passages": [],
                "pending": None,
                "runId": self.run_id,
                "steps": [],
                "title": None,
                "updates": None,
                "workflowName": workflow.name,
            }
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(20)
        self.rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORK, str(theirs.fileno()), mode, str(self.log)],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        theirs.close()
        self.pid = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self.process.communicate()

    def exit_code(self):
        """How the runner ended; waits for it."""
        return int(self.process.stdout.readline())

    # -- frames

    def send(self, value):
        self.socket.sendall(canonical_json.encode(value) + b"\n")

    def receive(self):
        """The next message, its payload decoded; None at the end of the stream."""
        while b"\n" not in self.rest:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:  # it ended with answers unread
                return None
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        assert len(line) < 1 << 20
        message = canonical_json.check(line)
        self.messages.append(message)
        return message

    def answer(self, message, outcome="accepted", *, result=None, revision=None, error=None):
        self.send(
            {
                "error": error,
                "messageId": message["messageId"],
                "outcome": outcome,
                "result": None if result is None else self.value(result),
                "revision": revision,
                "schema": RESPONSE_SCHEMA,
            }
        )

    def value(self, value):
        data = canonical_json.encode(value)
        if len(data) <= INLINE_BYTES * 3:
            return {"inline": value}
        digest = hashlib.sha256(data).hexdigest()
        self.offered[digest] = data
        return {"content": {"bytes": len(data), "mediaType": "application/json", "sha256": digest}}

    def told(self, state):
        """A run's state as a runner is told of it: its values inline, or by reference."""
        steps = [
            {**step, "output": self.value(step["output"]) if step["outcome"] == "ok" else None}
            for step in state["steps"]
        ]
        return {**state, "input": self.value(state["input"]), "steps": steps}

    def envelope(self, **changes):
        return {
            "definitionDigest": self.digest,
            "generation": 3,
            "inputHash": "00" * 32,
            "mountedSources": [],
            "projectPath": str(self.folder),
            "protocolVersion": 1,
            "runId": self.run_id,
            "runnerEpoch": self.epoch,
            "schema": LAUNCH_SCHEMA,
            "workflowSource": {"ref": "cell:test", "revision": "0", "type": "file"},
        } | changes

    def shake_hands(self, command="start", **changes):
        self.send(self.envelope(**changes))
        ready = self.receive()
        assert (ready["kind"], ready["operation"]) == ("runner.ready", "runner.ready")
        self.answer(ready)
        self.send(
            {
                "command": command,
                "parentRunId": None,
                "schema": COMMAND_SCHEMA,
                "source": self.value(self.frozen),
                "window": self.window,
            }
        )

    # -- a server that says yes

    def handle(self, message):
        """Accept a message as a server would, and give its payload where it is a transition."""
        operation, payload = message["operation"], message["payload"]
        assert message["generation"] == 3
        assert message["runnerEpoch"] == self.epoch
        if operation == "content.read":
            data = self.offered[payload["sha256"]][payload["offset"] :][: 512 << 10]
            self.answer(message, result={"base64": base64.b64encode(data).decode()})
            return None
        if operation == "content.write":
            have = self.contents.setdefault(payload["sha256"], bytearray())
            assert payload["offset"] == len(have)
            have += base64.b64decode(payload["base64"])
            self.answer(message)
            return None
        if operation in ("store.initializeRun", "store.prepareRunResume"):
            self.answer(message, result=self.told(self.state), revision=self.revision)
            return None
        if operation == "store.reserveEffect":
            assert message["expectedRevision"] == self.revision
            self.answer(message, result={"attemptNumber": 1, "effectId": "effect-1", "result": None, "state": "apply"})
            return None
        if operation == "store.publishUpdate":
            assert message["expectedRevision"] == self.revision
            self.revision += 1
            self.answer(message, revision=self.revision)
            return None
        if operation == "runner.exiting":
            self.answer(message)
            return payload
        assert operation == "store.writeSnapshot"
        assert message["expectedRevision"] == self.revision
        self.revision += (payload["finished"] is not None) + (payload["started"] is not None)
        self.revision += 2 * (payload["end"] is not None)
        self.answer(message, revision=self.revision)
        return payload

    def serve(self, until=lambda message: False):
        """Accept everything until the stream ends or a message fits; gives that message, unanswered."""
        while (message := self.receive()) is not None:
            if until(message):
                return message
            self.handle(message)
        return None

    def run(self, **changes):
        """The whole talk: hands shaken, everything accepted, the process gone. Gives its exit code."""
        self.shake_hands(**changes)
        self.serve()
        return self.exit_code()

    def transitions(self):
        return [message["payload"] for message in self.messages if message["operation"] == "store.writeSnapshot"]

    def end(self):
        """The end of the run, its output decoded."""
        return next(payload["end"] for payload in self.transitions() if payload["end"] is not None)

    def decoded(self, value):
        if "inline" in value:
            return value["inline"]
        data = bytes(self.contents[value["content"]["sha256"]])
        assert len(data) == value["content"]["bytes"]
        assert hashlib.sha256(data).hexdigest() == value["content"]["sha256"]
        return canonical_json.decode(data)


def chain(*bodies, decorators=None, name="test"):
    """The text of a workflow of one node after the other; each body is the inside of its function."""
    lines = ["import pi_workflows_nb as pw", f"wf = pw.Workflow({name!r}, start_at='n0', max_steps=100000)"]
    for number, body in enumerate(bodies):
        decorator = (decorators or {}).get(number, "wf.compute")
        lines += [f"@{decorator}", f"def n{number}(ctx):", *(f"    {line}" for line in body.splitlines())]
        if number:
            lines.append(f"wf.edge('n{number - 1}', 'n{number}')")
    return "\n".join(lines) + "\n"


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


def ask(folder, question):
    """Put one question to an inspecting child."""
    with Peer(folder, mode="inspect") as peer:
        assert peer.receive() == {"ready": True}
        peer.socket.sendall(json.dumps(question).encode() + b"\n")
        answer = peer.receive()
        assert peer.exit_code() == 0
        return answer
