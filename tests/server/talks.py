"""Runners that say to their server what no proper runner says; called by the nodes of real runs."""

from __future__ import annotations

import gc
import json
import subprocess
import time
from pathlib import Path

from pi_workflows_nb.runner.proc import start_identity
from pi_workflows_nb.runner.store import ServerBackedWorkflowStore
from pi_workflows_nb.wire.canonical_json import encode
from pi_workflows_nb.wire.identities import new_id
from pi_workflows_nb.wire.runner_messages import LAUNCH_SCHEMA, MESSAGE_SCHEMA


class Talk:
    """The channel of the runner whose node calls this, everything said before answered."""

    def __init__(self):
        self.store = next(found for found in gc.get_objects() if isinstance(found, ServerBackedWorkflowStore))
        self.store.settle()
        self.transport = self.store._transport
        self.envelope = self.transport._envelope

    def message(self, operation, payload, kind="runner.progress", **changes):
        return {
            "attemptId": None,
            "expectedRevision": self.store._revision,
            "generation": self.envelope.generation,
            "kind": kind,
            "launchSchema": LAUNCH_SCHEMA,
            "messageId": new_id(),
            "operation": operation,
            "payload": payload,
            "runId": self.envelope.run_id,
            "runnerEpoch": self.envelope.runner_epoch,
            "schema": MESSAGE_SCHEMA,
        } | changes

    def say(self, data):
        self.transport._channel.sendall(data)

    def hear(self):
        return json.loads(self.transport.receive_line())

    def ask(self, operation, payload, kind="runner.progress", **changes):
        """Send a message and give its answer, whatever it is."""
        self.say(encode(self.message(operation, payload, kind, **changes)) + b"\n")
        return self.hear()

    def update(self, attempt_id, number):
        payload = {"attemptId": attempt_id, "data": {"inline": {"n": number}}, "key": "k", "type": "t"}
        return self.message("store.publishUpdate", payload, "node.update", attemptId=attempt_id)


def first_time(folder, name):
    """Whether this is asked for the first time under this name, by whichever runner."""
    try:
        Path(folder, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def fall_silent():
    """Wait for an end that the server is to bring."""
    time.sleep(60)


def escaped():
    """A descendant that is in nobody's session or group, without a word in its environment; pid and identity."""
    command = "setsid env -i sleep 1000 > /dev/null 2>&1 & echo $!"
    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd="/")
    pid = int(shown.stdout)
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
        assert time.monotonic() < until
        time.sleep(0.01)
    return pid, start_identity(pid)


def bad_frames(talk, attempt_id):
    """What is no frame of the protocol, or not of this runner: name and bytes."""
    update = talk.update(attempt_id, 1)
    good = encode(update)
    inner = b'{"attemptId":'
    return {
        "garbage": b"\xff\xfe{]",
        "empty": b"",
        "number": b"1",
        "spaces": good.replace(b":", b": ", 1),
        "order": json.dumps(dict(reversed(update.items())), separators=(",", ":")).encode(),
        "payload order": good.replace(b'"key":"k","type":"t"', b'"type":"t","key":"k"'),
        "value order": good.replace(b'{"n":1}', b'{"z":1,"a":1}'),
        "unknown field": encode(update | {"zzz": 1}),
        "unknown field inside": encode(update | {"payload": update["payload"] | {"more": 1}}),
        "missing field": encode({key: value for key, value in update.items() if key != "kind"}),
        "duplicate key": good.replace(inner, inner + b"null," + inner.removeprefix(b"{"), 1),
        "other epoch": encode(update | {"runnerEpoch": new_id()}),
        "other generation": encode(update | {"generation": talk.envelope.generation + 1}),
        "other run": encode(update | {"runId": "someone-else"}),
        "other schema": encode(update | {"schema": "pi-workflows.worker-message.v2"}),
        "other kind": encode(update | {"kind": "runner.progress"}),
        "no kind": encode(update | {"kind": "runner.unheard"}),
        "no operation": encode(update | {"operation": "store.dropEverything"}),
        "other attempt": encode(update | {"attemptId": "another"}),
        "huge number": good.replace(b'"expectedRevision":', b'"expectedRevision":9' + b"9" * 400),
        "negative": encode(update | {"expectedRevision": -1}),
        "fraction": encode(update | {"generation": 1.5}),
        "surrogate": good.replace(b'"k"', b'"\\ud800"'),
        "deep": good.replace(b'{"n":1}', b'{"n":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        "truncated": good[:-1],
        "oversize": good.replace(b'"k"', b'"' + b"k" * (1 << 20) + b'"'),
        "both": encode(update | {"payload": update["payload"] | {"data": {"content": _content(), "inline": 1}}}),
        "not transferred": encode(update | {"payload": update["payload"] | {"data": {"content": _content()}}}),
        "ready again": encode(talk.message("runner.ready", {}, "runner.ready")),
    }


NAMES = (
    *("garbage", "empty", "number", "spaces", "order", "payload order", "value order", "unknown field"),
    *("unknown field inside", "missing field", "duplicate key", "other epoch", "other generation", "other run"),
    *("other schema", "other kind", "no kind", "no operation", "other attempt", "huge number", "negative", "fraction"),
    *("surrogate", "deep", "truncated", "oversize", "both", "not transferred", "ready again"),
)


def _content():
    return {"bytes": 1, "mediaType": "application/json", "sha256": "0" * 64}
