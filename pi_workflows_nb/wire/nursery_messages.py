"""What a server and its nursery say to each other: one JSON object a line, both ways.

A `spawn` is accompanied by one descriptor, the runner's end of its channel. Whoever hears something else than these
gives the other up: the nursery then ends all its children, and the server starts another nursery.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from .errors import ProtocolError

MAX_COMMAND_BYTES: Final = 64 << 20
"""An environment may be large."""

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class Begin(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="begin"):
    """Import what all children share: the entry as `module:function`, and modules."""

    entry: str
    preload: list[str]


class Guard(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="guard"):
    """Hold the locks of the state file at this path."""

    path: bytes


class Unguard(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="unguard"):
    """Give them up."""


class Spawn(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="spawn"):
    """Fork a child; `environment`, pairs of name and value, is the nursery's own where it is None.

    What the system takes for bytes travels as bytes: paths and environments need not be text.
    """

    id: Number
    mode: str
    folder: bytes
    log: bytes
    epoch: str
    environment: list[tuple[bytes, bytes]] | None


class Signal(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="signal"):
    """Signal the group of a child; nothing happens when it was collected already."""

    id: Number
    signal: Annotated[int, Meta(ge=1, le=64)]


class Stop(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="stop"):
    """Kill all children, collect them, and end."""


class Answer(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="answer"):
    """How a `begin`, `guard` or `unguard` went."""

    to: Literal["begin", "guard", "unguard"]
    error: str | None


class Spawned(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="spawned"):
    """A child was forked; `identity` None where the system has none."""

    id: Number
    pid: Number
    identity: str | None


class Refused(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="refused"):
    """A child could not be forked."""

    id: Number
    error: str


class Exited(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="exited"):
    """Nothing is left of a child; `status` is its exit code, or the negative number of the signal that ended it."""

    id: Number
    pid: Number
    status: Annotated[int, Meta(ge=-64, le=255)]


Command: TypeAlias = Begin | Guard | Unguard | Spawn | Signal | Stop
Event: TypeAlias = Answer | Spawned | Refused | Exited

encode = msgspec.json.Encoder().encode
_command: Final = msgspec.json.Decoder[Command](Command)
_event: Final = msgspec.json.Decoder[Event](Event)


def read_command(line: bytes) -> Command:
    """Decode a line of the server; `ProtocolError` when it is no command."""
    return _read(_command, line, "command of a server")


def read_event(line: bytes) -> Event:
    """Decode a line of the nursery; `ProtocolError` when it is no event."""
    return _read(_event, line, "event of a nursery")


def _read(decoder: msgspec.json.Decoder[T], line: bytes, what: str) -> T:
    try:
        found = decoder.decode(line)
        again = encode(found)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"no {what}: {str(error)[:200]}") from None
    if again != line:
        raise ProtocolError(f"no {what}: it is not written as one")
    return found
