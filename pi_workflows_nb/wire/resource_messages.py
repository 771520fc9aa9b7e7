"""What a resource runner and its server say: the runner's frames, with manager, key, uid and claim in place of a run.

A resource runner makes one pass over one managed resource. It says that it is ready, is sent the resource and the
manager's source, asks for what it needs one message at a time, says how the pass ends, and leaves. Answers are those of
`runner_messages`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Raw

from .runner_messages import Count, Digest, Id, Kind, Record, Value

RESOURCE_LAUNCH_SCHEMA: Final = "pi-workflows.resource-launch.v1"
RESOURCE_MESSAGE_SCHEMA: Final = "pi-workflows.resource-message.v1"
RECONCILE_SCHEMA: Final = "pi-workflows.resource-command.v1"

SCHEDULE: Final = "schedule"
"""The built-in manager of runs at times: its resources wait for moments, those of others for a while."""

RESOURCE_KINDS: Final[dict[str, Kind]] = {
    "runner.ready": "runner.ready",
    "runner.exiting": "runner.exiting",
    "content.read": "runner.progress",
    "content.write": "runner.progress",
    "resource.reserveEffect": "effect.reserve",
    "resource.beginEffect": "effect.reserve",
    "resource.updateEffect": "effect.settle",
    "resource.reserveWorkflow": "runner.progress",
    "resource.recordEvent": "runner.progress",
    "resource.finishPass": "run.finished",
    "resource.failPass": "run.finished",
}
"""Every operation, and the kind under which it is sent."""

Name = Annotated[str, Meta(min_length=1)]


class ResourceEnvelope(Record, frozen=True):
    """The first line a resource runner reads: which claim on which resource it works under."""

    claim_generation: Count
    key: str
    project_path: str
    protocol_version: int
    resource_manager: str
    runner_epoch: str
    schema: str
    uid: str


class ResourceState(Record, frozen=True):
    """A managed resource as it was when its pass began; spec and status are stored values."""

    deletion_timestamp: int | None
    finalizers: list[str]
    generation: Count
    resource_version: Count
    spec: Value
    status: Value


class ReconcileCommand(Record, frozen=True):
    """What to do, sent once after `runner.ready`: `source` is the manager's, frozen; `filename` for its tracebacks."""

    filename: str | None
    resource: ResourceState
    schema: str
    source: Value


class ReserveResourceEffect(Record, frozen=True):
    """The wish to touch the world. With `may_apply` false only a known effect is adopted."""

    effect_kind: Name
    key: Name
    may_apply: bool
    request_fingerprint: Digest


class BeginResourceEffect(Record, frozen=True):
    """A known effect that was not found in the world is applied now."""

    key: Name


class UpdateResourceEffect(Record, frozen=True):
    """What is known of an effect now; `observed` tells whether somebody looked or it was applied."""

    error: str | None
    external_ref: str | None
    key: Name
    observed: bool
    state: Literal["applied", "rejected", "indeterminate"]


class ResourceEffectState(Record, frozen=True):
    """The answer to a reservation: `wanted` says that a person has asked for a new try of it."""

    created: bool
    effect_id: str
    error: str | None
    external_ref: str | None
    state: str
    wanted: bool


class ReserveWorkflow(Record, frozen=True):
    """The wish for a child workflow, by the name of it."""

    input: Value
    request_key: Name
    workflow: Name


class ChildState(Record, frozen=True):
    """How a child workflow stands; `output` is what its run gave once it has succeeded."""

    attempt: int
    error: str | None
    output: Value | None
    request_id: str
    run_id: str | None
    state: str


class RecordEvent(Record, frozen=True):
    """Something to note in the history of the resource."""

    payload: Value
    type: Name


class ConditionMessage(Record, frozen=True):
    """One condition of a status."""

    message: str | None
    reason: str
    status: bool | Literal["unknown"]
    type: str


class FinishPass(Record, frozen=True):
    """How the pass ends. `after_ms` is None for a settled resource; `status` the manager's whole own status, if new."""

    after_ms: Count | None
    conditions: list[ConditionMessage]
    finalizers: list[str] | None
    status: Value | None


class FailPass(Record, frozen=True):
    """The pass raised; the error with the lines of the manager's code."""

    error: str


class ResourceMessage(Record, frozen=True):
    """A proposal, question or sign of life of a resource runner."""

    claim_generation: Count
    key: str
    kind: Kind
    launch_schema: str
    message_id: Id
    operation: str
    payload: Raw
    resource_manager: str
    runner_epoch: str
    schema: str
    uid: str
