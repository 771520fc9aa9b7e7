"""What a runner is started with, and what it has achieved so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..state.mutation import Claim
from ..wire.runner_messages import Exiting, LaunchEnvelope, Started


@dataclass
class Launch:
    """What the claim of a run gave: enough to start its runner."""

    run_id: str
    claim: Claim
    runner_epoch: str
    envelope: LaunchEnvelope
    command: str
    parent_run_id: str | None
    source: bytes
    project_path: str


@dataclass
class Progress:
    """What a runner has achieved so far, as committed."""

    ready: bool = False
    boundaries: int = 0
    ended: bool = False
    abandoned: bool = False
    active: Started | None = None
    last_attempt: str | None = None
    exiting: Exiting | None = None
    cancel_interrupted: bool = False
    refused: bool = False
    stopped: bool = False
    resend_from: str | None = None
    diagnostics: list[str] = field(default_factory=list)
