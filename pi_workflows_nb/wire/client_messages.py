"""`pi-workflows.client.v1`: what a client and the server say over the Unix socket, one canonical JSON object a line."""

from __future__ import annotations

from typing import Any, Final, Literal

from .runner_messages import Record

CLIENT_SCHEMA: Final = "pi-workflows.client.v1"

ClientOutcome = Literal["accepted", "adopted", "rejected", "conflict", "notFound", "claimLost", "unavailable"]


class Hello(Record, frozen=True, tag_field="type", tag="hello"):
    """The first line in both directions. `kind` tells a kernel (keeps a process server alive) from a command line."""

    client_id: str
    kind: str
    pid: int
    schema: str = CLIENT_SCHEMA


class Request(Record, frozen=True, tag_field="type", tag="request"):
    """One operation; `idempotency_key` makes a repeat adopt the first one's receipt."""

    client_id: str
    expected_revision: int | None
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
    revision: int | None
    schema: str = CLIENT_SCHEMA


class Event(Record, frozen=True, tag_field="type", tag="event"):
    """A change of something subscribed to: the whole live view, never a difference to one that may have been missed."""

    subject: str
    view: dict[str, Any]
    schema: str = CLIENT_SCHEMA


ClientFrame = Hello | Request | Response | Event
