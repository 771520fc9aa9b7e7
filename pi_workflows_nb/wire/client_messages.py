"""`pi-workflows.client.v1`: what a client and the server say over the Unix socket, one canonical JSON object a line.

Client and server greet each other with a hello. Then the client sends requests, each answered by one response under
its request id, and the server sends events about what the client subscribed to.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from . import canonical_json
from .decoding import converted
from .errors import ProtocolError
from .runner_messages import Count, Record

CLIENT_SCHEMA: Final = "pi-workflows.client.v1"
RUN_LIST: Final = "runs"
"""The subject of events about the list of runs; events about one run have its id as subject."""
SERVER: Final = "server"
"""The subject of the last event on a connection: the server takes leave, and says how."""

ClientOutcome = Literal["accepted", "adopted", "rejected", "conflict", "notFound", "claimLost", "unavailable"]
Farewell = Literal["stopped", "leaving", "lost"]
"""`stopped`: somebody asked for it, and nobody takes over. `leaving`: the process ends, and clients may serve instead.

`lost`: another server has the file.
"""


class Hello(Record, frozen=True, tag_field="type", tag="hello"):
    """The first line in both directions.

    `kind` tells a kernel from a command line, and a server in a kernel (`kernel`) from one in a process of its own
    (`server`). `client_id` is, of a server, its own id.
    """

    client_id: str
    kind: str
    pid: Count
    schema: str = CLIENT_SCHEMA


class Request(Record, frozen=True, tag_field="type", tag="request"):
    """One operation; `idempotency_key` makes a repeat adopt the first one's receipt, under any request id."""

    client_id: str
    expected_revision: Count | None
    idempotency_key: str
    operation: str
    payload: dict[str, Any]
    request_id: str
    run_id: str | None
    schema: str = CLIENT_SCHEMA


class Response(Record, frozen=True, tag_field="type", tag="response"):
    """The outcome of a request, and its receipt."""

    error: str | None
    outcome: ClientOutcome
    receipt: dict[str, Any] | None
    request_id: str
    revision: Count | None
    schema: str = CLIENT_SCHEMA


class Event(Record, frozen=True, tag_field="type", tag="event"):
    """A change of something subscribed to, as a whole view.

    `revision` is the subject's newest; `after` the one this client had, and `targets` the parts of the view that
    changed in between. Without `after` it is a snapshot: whatever the client knew may have changed.
    """

    after: Count | None
    revision: Count
    subject: str
    targets: list[str]
    view: dict[str, Any]
    schema: str = CLIENT_SCHEMA


class Leave(Record, frozen=True):
    """The view of the last event on a connection."""

    farewell: Farewell


class Subscribe(Record, frozen=True):
    """The payload of `subscribe`, and of `unsubscribe`: what to follow.

    `run` is the live view of the request's run, from `after` on if that revision is still kept; `runs` the newest
    `limit` runs, of one project if it is given (a path); `session` a session's messages.
    """

    subject: Literal["run", "runs", "session"] = "run"
    after: Count | None = None
    limit: Count = 100
    project: str | None = None


class RunList(Record, frozen=True):
    """The payload of `run.list`: the newest `limit` runs, of one project if it is given (a path)."""

    limit: Count = 100
    project: str | None = None


class StateBackup(Record, frozen=True):
    """The payload of `state.backup`: the absolute path of the copy."""

    destination: str


class StatePrune(Record, frozen=True):
    """The payload of `state.prune`: what ended before a moment (ms since the epoch), and whether it is to leave.

    `backup` is the absolute path of the copy that is made first; without `apply` it is only told what would leave.
    """

    before: Count
    apply: bool = False
    backup: str | None = None


ClientFrame = Hello | Request | Response | Event


def read_frame(line: bytes) -> ClientFrame:
    """Decode a frame of either side; `ProtocolError` when it is none."""
    frame: ClientFrame = converted(ClientFrame, line)
    if frame.schema != CLIENT_SCHEMA:
        raise ProtocolError(f"schema {frame.schema[:80]!r} is not {CLIENT_SCHEMA}")
    return frame


def write_frame(frame: ClientFrame) -> bytes:
    """Its line, without the end; `NotJsonError` where it holds a value that is not JSON."""
    return canonical_json.encode(msgspec.to_builtins(frame))
