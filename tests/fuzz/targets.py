"""What is fuzzed: each reader of frames, with frames that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from pi_workflows_nb.wire import canonical_json, client_messages, nursery_messages
from pi_workflows_nb.wire import runner_messages as runner
from pi_workflows_nb.wire.decoding import decoded, of_kind
from pi_workflows_nb.wire.errors import PiWorkflowsError, ProtocolError
from pi_workflows_nb.wire.lines import Lines

DIGEST = "0" * 63 + "a"
VALUE = runner.Value(inline=Raw(b'{"10":1,"a":[1e+21,"\xc3\xa9",null]}'))
LARGE = runner.Value(content=runner.ContentRef(2_000_000, "application/json", DIGEST))
SETTLED = runner.EffectSettlement("e", None, "applied")
FINISHED = runner.Finished("a", SETTLED, None, 1_800_000_000_000, "n", "ok", VALUE, True)
STARTED = runner.Started("b", 1_800_000_900_000, "m/n", "compute", 1, False, 1_800_000_000_000)
END = runner.End("nap", None, None, None, 5000, "sleeping")
STRUCTS: list[msgspec.Struct] = [
    runner.RunnerMessage(
        "a", 7, 1, "node.finished", runner.LAUNCH_SCHEMA, "m-1", "store.writeSnapshot",
        Raw(runner.encode(runner.Snapshot(False, END, FINISHED, STARTED))), "run-1", "epoch-1", runner.MESSAGE_SCHEMA,
    ),
    runner.Snapshot(False, END, FINISHED, STARTED),
    runner.Snapshot(False, None, FINISHED, STARTED, [runner.Passage("include_entered", "m", None, VALUE)]),
    runner.SettingsOf("m"),
    runner.ReserveEffect("a", "t.create", "k", "idempotent", VALUE),
    runner.SettleEffect("e", "boom", None, "rejected", LARGE),
    runner.Update("a", VALUE, "overall", "progress"),
    runner.ContentRead(0, DIGEST),
    runner.ContentWrite("QUFB", 3, "application/json", 0, DIGEST),
    runner.Nothing(),
    runner.ReadRunState("run-0"),
    runner.ChildProcess(4242, "b:1:17"),
    runner.Exiting("gone", "failed"),
    runner.LaunchEnvelope(
        DIGEST, 1, DIGEST, [{"mount": "a", "ref": "b"}], "/p", 1, "run-1", "epoch-1", runner.LAUNCH_SCHEMA,
        {"ref": "inline:w", "revision": "00", "type": "inline"},
    ),
    runner.RunnerCommand("continue", "run-0", runner.COMMAND_SCHEMA, LARGE, 16),
    runner.RunnerResponse(None, "m-1", "accepted", VALUE, 9, runner.RESPONSE_SCHEMA),
]  # fmt: skip
CLIENT = [
    client_messages.Hello(client_id="c", kind="kernel", pid=1),
    client_messages.Request(
        client_id="c", expected_revision=3, idempotency_key="k", operation="run.start", payload={"a": [1, 2.5, None]},
        request_id="r", run_id=None,
    ),
    client_messages.Response(error=None, outcome="accepted", receipt={"runId": "x"}, request_id="r", revision=1),
    client_messages.Event(after=1, revision=2, subject="run-1", targets=["graph"], view={"status": "running"}),
]  # fmt: skip
COMMANDS = [
    nursery_messages.Begin("m:f", ["json"]),
    nursery_messages.Guard(b"/s"),
    nursery_messages.Spawn(1, "run", b"/", b"/log", "e", [(b"A", b"\xff")]),
    nursery_messages.Signal(1, 9),
    nursery_messages.Stop(),
]
EVENTS = [
    nursery_messages.Answer("begin", None),
    nursery_messages.Spawned(1, 2, "b:1:17"),
    nursery_messages.Refused(1, "no"),
    nursery_messages.Exited(1, 2, -9),
]
JSON = [
    b'{"9":1,"10":2,"a":{"b":[true,false,null,-0.5,1e-7,"\\ud800\\n"]}}',
    b"[[[[]]]]",
    b'"\xf0\x9d\x84\x9e"',
    b"1e+21",
]


@dataclass(frozen=True)
class Target:
    """A reader: `read` takes bytes, and `write` gives what was read as bytes again."""

    name: str
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    seeds: list[bytes]

    def check(self, data: bytes) -> bool:
        """Read these bytes; whether they were taken. Whatever else comes out than the one error is a fault."""
        try:
            found = self.read(data)
        except PiWorkflowsError as error:
            if len(str(error)) >= 2000:
                raise AssertionError(f"{self.name}: an error as long as what it is about") from error
            return False
        again = self.write(found)
        assert again == data, f"{self.name}: took {data[:200]!r}, which would be written {again[:200]!r}"
        return True


def _of_struct(sample: msgspec.Struct) -> Target:
    kind = type(sample)
    decoder = msgspec.json.Decoder(kind)
    return Target(kind.__name__, lambda data: decoded(decoder, data), runner.encode, [runner.encode(sample)])


def _cut(data: bytes) -> list[bytes]:
    """A stream that arrives in pieces, whose sizes it tells itself."""
    lines, found, at = Lines(4096), [], 0
    while at < len(data):
        size = data[at] * 17 + 1
        found += lines.cut(data[at : at + size])
        at += size
    if any(len(line) > 4096 for line in found):
        raise AssertionError("a line that is too long went through")
    rest = bytes(lines.cut(b"\n")[-1])
    assert b"\n".join([*found, rest]) == data, "a stream was not cut into its lines"
    return found


def _payload(data: bytes) -> Any:
    value = canonical_json.check(data)
    for kind in (client_messages.Subscribe, client_messages.RunList, client_messages.Leave):
        try:
            of_kind(kind, value)
        except ProtocolError:
            pass
    return value


TARGETS = [
    *map(_of_struct, STRUCTS),
    Target("client frame", client_messages.read_frame, client_messages.write_frame,
           [client_messages.write_frame(frame) for frame in CLIENT]),
    Target("command of the server", nursery_messages.read_command, nursery_messages.encode,
           [nursery_messages.encode(one) for one in COMMANDS]),
    Target("event of the nursery", nursery_messages.read_event, nursery_messages.encode,
           [nursery_messages.encode(one) for one in EVENTS]),
    Target("canonical JSON", canonical_json.check, canonical_json.encode, JSON),
    Target("payload of a client", _payload, canonical_json.encode,
           [b'{"limit":3,"project":"/p"}', b'{"subject":"run"}']),
]  # fmt: skip
STREAM = Target("stream of lines", lambda data: (_cut(data), data)[1], bytes, [b"\x01a\nb\n", b"x" * 5000 + b"\n"])
