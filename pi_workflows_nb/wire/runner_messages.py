"""What a runner and its server say to each other: one canonical JSON object a line, at most 1 MiB.

The fields of each struct stand in the order of their JSON names, so that encoding a decoded frame gives canonical bytes
again wherever its values were canonical. Values of user code travel as `Value`: inline as raw bytes, or, when large, by
the digest of bytes that were transferred before (`content.write`) or can be fetched (`content.read`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

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
RECENT_MS: Final = 5000

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Id = Annotated[str, Meta(min_length=1, max_length=512)]
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
_PROGRESS: Final[frozenset[Kind]] = frozenset({"runner.progress"})
KINDS: Final[dict[str, frozenset[Kind]]] = {
    "runner.ready": frozenset({"runner.ready"}),
    "runner.exiting": frozenset({"runner.exiting"}),
    "store.writeSnapshot": frozenset({"node.started", "node.finished", "node.failed", "run.parked", "run.finished"}),
    "store.publishUpdate": frozenset({"node.update"}),
    "store.reserveEffect": frozenset({"effect.reserve"}),
    "store.settleEffect": frozenset({"effect.settle"}),
    "interaction.request": frozenset({"interaction.requested"}),
    "store.createHumanDecisionRequest": frozenset({"interaction.requested"}),
    "interaction.accept": frozenset({"interaction.accepted"}),
    "interaction.reject": frozenset({"interaction.rejected"}),
    "notification.request": frozenset({"notification.requested"}),
    "presentation.request": frozenset({"presentation.requested"}),
    "store.initializeRun": _PROGRESS,
    "store.prepareRunResume": _PROGRESS,
    "store.readRunState": _PROGRESS,
    "store.findSettingsScope": _PROGRESS,
    "store.ensureSettingsScope": _PROGRESS,
    "store.getSettingsScopeAtChange": _PROGRESS,
    "store.readResolvedHumanDecision": _PROGRESS,
    "content.read": _PROGRESS,
    "content.write": _PROGRESS,
    "process.register": _PROGRESS,
    "process.unregister": _PROGRESS,
}
"""Every operation, and the kinds under which it may be sent."""


class Record(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A struct of the protocol: camelCase on the wire, unknown fields refused."""


class ContentRef(Record, frozen=True):
    """Bytes of `bytes` length under their SHA-256 (hex)."""

    bytes: Count
    media_type: str
    sha256: Digest


class Value(Record, frozen=True):
    """A JSON value of user code: exactly one of `content` and `inline`."""

    content: ContentRef | UnsetType = UNSET
    inline: Raw | UnsetType = UNSET


class LaunchEnvelope(Record, frozen=True):
    """The first line a runner reads; stored with its runner epoch."""

    definition_digest: str
    generation: Count
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

    effect_id: Id
    external_ref: str | None
    outcome: Literal["applied", "rejected", "ambiguous", "retry"]


class SettingsSeen(Record, frozen=True):
    """The settings of a mount (of the run itself: the empty path) that an attempt works under, by their number."""

    change_number: Count
    mount_path: str


class Finished(Record, frozen=True):
    """The end of one attempt; `step` is false when the node will be tried again.

    `unless_changed` are settings that must be the newest still, or the transition is declined.
    """

    attempt_id: Id
    effect: EffectSettlement | None
    error: str | None
    finished_at: Count
    node_id: Id
    outcome: Outcome
    output: Value | None
    step: bool
    unless_changed: SettingsSeen | UnsetType = UNSET


class Started(Record, frozen=True):
    """The start of one attempt; times in milliseconds since the epoch.

    `retry_on_timeout` tells the server whether another try would follow a timeout, for the case that the runner cannot
    say so any more because the node's code holds the interpreter.
    """

    attempt_id: Id
    deadline_at: Count | None
    node_id: Id
    node_type: Id
    number: Count
    retry_on_timeout: bool
    started_at: Count
    under_settings: SettingsSeen | UnsetType = UNSET


class End(Record, frozen=True):
    """The end of the run, its wait for an answer (`waiting`) or until a moment (`sleeping`).

    A sleep is over at `due_at`, in milliseconds since the epoch, or, as a wait may be, `pause_ms` after it was
    recorded: the server's clock and the runner's may have been set apart. The attempt under way stays open in both.
    """

    detail: str | None
    due_at: Count | None
    error: str | None
    output: Value | None
    pause_ms: Count | None
    status: Literal["completed", "failed", "timed_out", "cancelled", "waiting", "sleeping"]


class Passage(Record, frozen=True):
    """The way into a mounted workflow, with its input, or out of it, with `{"exit", "output"}`; `mount` is its path.

    `settings` are those that it begins with, where it declares some.
    """

    event: Literal["include_entered", "include_exited"]
    mount: Id
    settings: Value | None
    value: Value


class SettingsOf(Record, frozen=True):
    """Ask for the newest settings of a mount, the empty path for those of the run itself."""

    mount_path: str


class SettingsState(Record, frozen=True):
    """Settings as they stand after so many changes."""

    change_number: int
    scope_id: str
    value: Value


class Snapshot(Record, frozen=True):
    """One transition of a run: what finished, what started, how it ended. At least one is set.

    `through` are the mounts on the way from what finished to what follows; a run without any leaves it out.
    """

    abandoned: bool
    end: End | None
    finished: Finished | None
    started: Started | None
    through: list[Passage] | UnsetType = UNSET


class ReserveEffect(Record, frozen=True):
    """The wish to touch the world, recorded before it is touched."""

    attempt_id: Id
    effect_type: Id
    idempotency_key: str
    recovery: Literal["idempotent", "manual"]
    request: Value


class SettleEffect(Record, frozen=True):
    """The end of an effect alone, without an end of its node: for whoever finds out later what happened."""

    effect_id: Id
    error: str | None
    external_ref: str | None
    outcome: Literal["applied", "rejected", "ambiguous", "retry"]
    result: Value | None


class Update(Record, frozen=True):
    """One `publish_update` of a node."""

    attempt_id: Id
    data: Value
    key: str
    type: str


class AskSession(Record, frozen=True):
    """Put the attempt under way to the run's session, and park until it was answered. `detail` is the node."""

    attempt_id: Id
    contract: Value
    detail: str


class AskPerson(Record, frozen=True):
    """Put the attempt under way to a person, and park until it was decided, or `pause_ms` are over."""

    attempt_id: Id
    decision: Value
    detail: str
    pause_ms: Count | None


class ContentRead(Record, frozen=True):
    """Ask for up to 512 KiB of a blob from `offset`; the answer's result is `{"base64": text}`."""

    offset: Count
    sha256: Digest


class ContentWrite(Record, frozen=True):
    """A part of at most 512 KiB, base64; the last one completes `bytes` bytes whose SHA-256 is `sha256`."""

    base64: str
    bytes: Count
    media_type: str
    offset: Count
    sha256: Digest


class Nothing(Record, frozen=True):
    """The payload of what says everything by its operation."""


class ReadRunState(Record, frozen=True):
    """Ask for the state of another run of the same chain; null where there is no such run (any more)."""

    run_id: Id


class ChildProcess(Record, frozen=True):
    """A process that a runner has started and that must not outlive it, even where it leaves the runner's session."""

    pid: Annotated[int, Meta(ge=2, le=2**31 - 1)]
    start_identity: Id


class Step(Record, frozen=True):
    """One step of a run, as it goes to a runner."""

    attempt_id: str
    attempt_number: int
    error: str | None
    finished_at: int
    index: int
    node_id: str
    node_type: str
    outcome: Outcome
    output: Value | None
    started_at: int


class Passed(Record, frozen=True):
    """A passage of a run's past, and the number of steps before it; `value` is the text of canonical JSON."""

    event: Literal["include_entered", "include_exited"]
    mount: str
    steps: int
    value: str


class Pending(Record, frozen=True):
    """The node to run (again), and how many failed tries it has behind it."""

    failed_at: int | None
    node_id: str
    tries: int


class Published(Record, frozen=True):
    """What a run has published: its pairs of type and key, and the number of updates in the last `RECENT_MS`."""

    pairs: list[tuple[str, str]]
    recent: int


class RunState(Record, frozen=True):
    """From where a run goes on: the result of initializeRun, prepareRunResume and readRunState.

    `attempt_counts` is an object from node to number of attempts, kept as it was encoded; `updates` is there when the
    run has published some.
    """

    attempt_counts: Raw
    input: Value
    passages: list[Passed]
    pending: Pending | None
    run_id: str
    steps: list[Step]
    title: str | None
    updates: Published | None
    workflow_name: str


class Reservation(Record, frozen=True):
    """The result of reserveEffect."""

    attempt_number: int
    effect_id: str
    result: Value | None
    state: Literal["apply", "applied", "ambiguous"]


class Exiting(Record, frozen=True):
    """Why a runner leaves: `done`, `sourceChanged` (park the run) or `failed` (its own fault)."""

    detail: str | None
    reason: Literal["done", "sourceChanged", "failed"]


class RunnerMessage(Record, frozen=True):
    """A proposal, question or sign of life of a runner."""

    attempt_id: Id | None
    expected_revision: Count
    generation: Count
    kind: Kind
    launch_schema: str
    message_id: Annotated[str, Meta(min_length=1, max_length=128)]
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


def fits_inline(canonical: bytes, most: int = INLINE_BYTES) -> bool:
    """Whether a value may stand inside a frame: in so many bytes, and without lone surrogates.

    Readers that keep values raw take no lone surrogate, so a value with one goes the way of the large ones. Canonical
    bytes hold these letters for nothing else but a backslash that stands for itself.
    """
    return len(canonical) <= most and b"\\ud" not in canonical


def revisions_of(snapshot: Snapshot) -> int:
    """By how much an accepted transition raises the run's revision (a run's end also settles its queue row)."""
    through = 0 if snapshot.through is UNSET else len(snapshot.through)
    return (snapshot.finished is not None) + (snapshot.started is not None) + 2 * (snapshot.end is not None) + through


def kind_of(snapshot: Snapshot) -> Kind:
    """The kind under which a transition is sent."""
    if snapshot.end is not None:
        return "run.parked" if snapshot.end.status in ("waiting", "sleeping") else "run.finished"
    if snapshot.finished is not None:
        return "node.finished" if snapshot.finished.outcome == "ok" else "node.failed"
    return "node.started"


encode = msgspec.json.Encoder().encode
