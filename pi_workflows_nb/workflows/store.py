"""What the engine asks of the place where a run is kept, and of whoever answers its agent nodes.

The engine walks a graph and knows nothing of files, servers or processes. Everything it wants to be remembered it
*proposes*; a store may answer a proposal later (run-ahead), and what was never answered never happened. Values inside a
proposal are canonical JSON bytes: they were checked once, where the error could still be the node's, and nobody needs
to encode them again. Values that a store gives back are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Outcome: TypeAlias = Literal["ok", "failed", "timed_out", "cancelled"]
EndStatus: TypeAlias = Literal["completed", "failed", "timed_out", "cancelled", "waiting", "sleeping"]
Recovery: TypeAlias = Literal["idempotent", "manual"]
EffectOutcome: TypeAlias = Literal["applied", "rejected", "ambiguous", "retry"]

RunState: TypeAlias = dict[str, Any]
"""From where a run goes on, a JSON object.

`runId`, `workflowName`, `title` (or None), `input`; `steps`: records with index, nodeId, attemptId, attemptNumber,
nodeType, outcome, output, error, startedAt, finishedAt (milliseconds since the epoch), those of earlier runs of the
chain included; `passages`: entries into mounted workflows and exits from them, each with event, mount, value and the
number of steps before it; `attemptCounts`: attempts so far by node; `pending`: None, or the node to run now as nodeId,
tries (failed tries already used for this step) and failedAt (milliseconds, when the last of them ended, or None);
`updates`, where some were published: `pairs`, the [type, key] of each, and `recent`, the number of the last seconds.
"""


@dataclass(slots=True)
class Settlement:
    """How the effect of an action ended; `retry` means that the same key will be applied again."""

    effect_id: str
    outcome: EffectOutcome
    external_ref: str | None = None


@dataclass(slots=True, frozen=True)
class SettingsCopy:
    """The settings of one attempt: those of a mount (the run itself has the empty path), after so many changes."""

    mount: str
    scope_id: str
    change_number: int
    value: Any


@dataclass(slots=True)
class NodeFinished:
    """The end of one attempt. `unless_changed` are settings that must still be the newest when it is stored.

    `output` is canonical JSON, present exactly when the outcome is `ok`; `step` is false when the node will be tried
    again; `finished_at` in milliseconds since the epoch.
    """

    node_id: str
    attempt_id: str
    outcome: Outcome
    output: bytes | None
    error: str | None
    finished_at: int
    step: bool = True
    effect: Settlement | None = None
    unless_changed: SettingsCopy | None = None


@dataclass(slots=True)
class NodeStarted:
    """The start of one attempt; `number` counts the attempts of this node from 1, times in milliseconds.

    `retry_on_timeout` says whether another try would follow if this one ran out of time.
    """

    node_id: str
    node_type: str
    attempt_id: str
    number: int
    started_at: int
    deadline_at: int | None
    retry_on_timeout: bool = False
    settings: SettingsCopy | None = None


@dataclass(slots=True)
class RunEnd:
    """The end of the run, its wait for an answer (`waiting`; `detail` is the node), or for a moment (`sleeping`).

    A sleep is over at `due_at`, in milliseconds since the epoch, or, as a wait for an event may be, after `pause_ms`.
    An attempt that has started stays open in both. `request` is what a session is asked for that attempt
    (`attempt_id`), as canonical JSON; `of_person` says that it is a decision for a person.
    """

    status: EndStatus
    output: bytes | None = None
    error: str | None = None
    detail: str | None = None
    due_at: int | None = None
    pause_ms: int | None = None
    request: bytes | None = None
    attempt_id: str | None = None
    of_person: bool = False


@dataclass(slots=True, frozen=True)
class Passage:
    """The way into a mounted workflow, with its input, or out of it, with `{"exit", "output"}`: no step.

    `mount` is the path of the mount, `value` canonical JSON; so is `settings`, with which the settings of a workflow
    that declares some begin.
    """

    event: Literal["include_entered", "include_exited"]
    mount: str
    value: bytes
    settings: bytes | None = None


@dataclass(slots=True)
class ProposedTransition:
    """What changes together: an attempt ends, the next one starts, the run ends. At least one of the three.

    `through` are the mounts that lie on the way from the one to the other.
    `abandoned` says that the code of the finished attempt is still running; a store whose process can end does so.
    """

    finished: NodeFinished | None = None
    started: NodeStarted | None = None
    end: RunEnd | None = None
    abandoned: bool = False
    through: tuple[Passage, ...] = ()


@dataclass(slots=True)
class EffectReservation:
    """The record of an effect before it is applied.

    `apply`: call the code now, for the `attempt_number`-th time; `applied`: it happened before, with `result`;
    `ambiguous`: nobody knows whether it happened, and a person must say.
    """

    effect_id: str
    state: Literal["apply", "applied", "ambiguous"]
    result: Any = None
    attempt_number: int = 1


class ExecutionStore(Protocol):
    """Where a run is kept.

    The engine calls one method at a time, whichever of its threads it is on. Every method raises `StoppedByServer` when
    the run is no longer this process's to change. `parks` tells whether a run that has to wait for a moment can leave
    this process and go on in another; where it cannot, the engine waits in place. `asks_session` tells whether an agent
    node that no executor answers can be put to a session.
    """

    parks: bool
    asks_session: bool

    def initialize(self) -> RunState:
        """Begin a run (or a continuation, whose steps are its parent's)."""

    def prepare_resume(self) -> RunState:
        """Go on with a run from its last durable boundary."""

    def propose(self, transition: ProposedTransition) -> None:
        """Take a transition; may return before it is durable.

        `SettingsChangedError`, and nothing taken, when settings have changed that must not have.
        """

    def settle(self) -> None:
        """Return when everything proposed is durable."""

    def reserve_effect(
        self, attempt_id: str, effect_type: str, key: str, recovery: Recovery, request: bytes
    ) -> EffectReservation:
        """Record the wish for an effect; `EffectRequestConflictError` when the key stands for another request."""

    def settings(self, mount: str) -> SettingsCopy:
        """The newest settings of a mount, or of the run itself; asked for only where there are some."""

    def publish_update(self, attempt_id: str, update_type: str, key: str, data: bytes) -> None:
        """Record one update of a running node, durable on return; `data` is a canonical JSON object."""

    def attend(self, wake: Callable[[], None]) -> None:
        """Learn how to get `settle` called while a node's code runs; `wake` may be called on any thread."""


@dataclass(slots=True, frozen=True)
class AgentRequest:
    """What an agent is asked: one object, given to the executor or to the callable that answers.

    `choices` is None unless the node is a decision; `attempt` counts the attempts of the node from 1; `input` is the
    run's input.
    """

    prompt: str
    expected_output: str | None
    choices: list[str] | None
    node_id: str
    attempt: int
    input: Any


class AgentStepExecutor(Protocol):
    """Whoever answers agent and decision nodes. `run` may be sync or async; a plain callable does as well."""

    def run(self, request: AgentRequest) -> Any:
        """Give the answer, a JSON value."""
