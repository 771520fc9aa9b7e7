"""What a runner and its server say to each other: one canonical JSON object a line, at most 1 MiB.

The fields of each struct stand in the order of their JSON names, so that encoding a decoded frame gives canonical bytes
again wherever its values were canonical. Values of user code travel as `Value`: inline as raw bytes, or, when large, by
the digest of bytes that were transferred before (`content.write`) or can be fetched (`content.read`).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

LAUNCH_SCHEMA: Final = "pi-workflows.worker-launch.v1"
MESSAGE_SCHEMA: Final = "pi-workflows.worker-message.v1"
RESPONSE_SCHEMA: Final = "pi-workflows.worker-response.v1"
COMMAND_SCHEMA: Final = "pi-workflows.worker-command.v1"
PROTOCOL_VERSION: Final = 1
MAX_FRAME_BYTES: Final = 1 << 20
INLINE_BYTES: Final = 256 << 10
PART_BYTES: Final = 512 << 10
RUN_AHEAD_STEPS: Final = 16
RUN_AHEAD_SECONDS: Final = 0.010
ERROR_UNITS: Final = 8192

Outcome = Literal["ok", "failed", "timed_out", "cancelled"]
Kind = Literal[
    "runner.ready",
    "node.started",
    "node.update",
    "node.finished",
    "node.failed",
    "run.parked",
    "run.finished",
    "interaction.requested",
    "interaction.accepted",
    "interaction.rejected",
    "notification.requested",
    "presentation.requested",
    "effect.reserve",
    "effect.settle",
    "runner.progress",
    "runner.exiting",
]


class Record(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A struct of the protocol: camelCase on the wire, unknown fields refused."""


class ContentRef(Record, frozen=True):
    """Bytes of `bytes` length under their SHA-256 (hex)."""

    bytes: int
    media_type: str
    sha256: str


class Value(Record, frozen=True):
    """A JSON value of user code: exactly one of `content` and `inline`."""

    content: ContentRef | UnsetType = UNSET
    inline: Raw | UnsetType = UNSET


class LaunchEnvelope(Record, frozen=True):
    """The first line a runner reads; stored with its runner epoch."""

    definition_digest: str
    generation: int
    input_hash: str
    mounted_sources: list[dict[str, str]]
    project_path: str
    protocol_version: int
    run_id: str
    runner_epoch: str
    schema: str
    workflow_source: dict[str, str]


class RunnerCommand(Record, frozen=True):
    """What to do, sent once after `runner.ready`."""

    command: Literal["start", "resume", "continue", "restart"]
    parent_run_id: str | None
    schema: str
    source: Value
    window: int


class EffectSettlement(Record, frozen=True):
    """The end of an action's effect; rides with the outcome of its node.

    `outcome` is `retry` when the same key may be applied again (idempotent, a try is left).
    """

    effect_id: str
    external_ref: str | None
    outcome: Literal["applied", "rejected", "ambiguous", "retry"]


class Finished(Record, frozen=True):
    """The end of one attempt; `step` is false when the node will be tried again."""

    attempt_id: str
    effect: EffectSettlement | None
    error: str | None
    finished_at: int
    node_id: str
    outcome: Outcome
    output: Value | None
    step: bool


class Started(Record, frozen=True):
    """The start of one attempt; times in milliseconds since the epoch.

    `retry_on_timeout` tells the server whether another try would follow a timeout, for the case that the runner cannot
    say so any more because the node's code holds the interpreter.
    """

    attempt_id: str
    deadline_at: int | None
    node_id: str
    node_type: str
    number: int
    retry_on_timeout: bool
    started_at: int


class End(Record, frozen=True):
    """The end of the run, or its wait for an answer (`waiting`)."""

    detail: str | None
    error: str | None
    output: Value | None
    status: Literal["completed", "failed", "timed_out", "cancelled", "waiting"]


class Snapshot(Record, frozen=True):
    """One transition of a run: what finished, what started, how it ended. At least one is set."""

    abandoned: bool
    end: End | None
    finished: Finished | None
    started: Started | None


class ReserveEffect(Record, frozen=True):
    """The wish to touch the world, recorded before it is touched."""

    attempt_id: str
    effect_type: str
    idempotency_key: str
    recovery: Literal["idempotent", "manual"]
    request: Value


class Update(Record, frozen=True):
    """One `publish_update` of a node."""

    attempt_id: str
    data: Value
    key: str
    type: str


class ContentRead(Record, frozen=True):
    """Ask for up to 512 KiB of a blob from `offset`; the answer's result is `{"base64": text}`."""

    offset: int
    sha256: str


class ContentWrite(Record, frozen=True):
    """A part of at most 512 KiB, base64; the last one completes `bytes` bytes whose SHA-256 is `sha256`."""

    base64: str
    bytes: int
    media_type: str
    offset: int
    sha256: str


class Exiting(Record, frozen=True):
    """Why a runner leaves: `done`, `sourceChanged` (park the run) or `failed` (its own fault)."""

    detail: str | None
    reason: Literal["done", "sourceChanged", "failed"]


class RunnerMessage(Record, frozen=True):
    """A proposal, question or sign of life of a runner."""

    attempt_id: str | None
    expected_revision: int
    generation: int
    kind: Kind
    launch_schema: str
    message_id: str
    operation: str
    payload: Raw
    run_id: str
    runner_epoch: str
    schema: str


class RunnerResponse(Record, frozen=True):
    """The answer; nothing is `accepted` before it is on disk."""

    error: str | None
    message_id: str
    outcome: Literal["accepted", "adopted", "rejected", "claimLost"]
    result: Value | None
    revision: int | None
    schema: str


def revisions_of(snapshot: Snapshot) -> int:
    """By how much an accepted transition raises the run's revision (a run's end also settles its queue row)."""
    return (snapshot.finished is not None) + (snapshot.started is not None) + 2 * (snapshot.end is not None)


def kind_of(snapshot: Snapshot) -> Kind:
    """The kind under which a transition is sent."""
    if snapshot.end is not None:
        return "run.parked" if snapshot.end.status == "waiting" else "run.finished"
    if snapshot.finished is not None:
        return "node.finished" if snapshot.finished.outcome == "ok" else "node.failed"
    return "node.started"


encode = msgspec.json.Encoder().encode
