"""The runner's only store: it knows nothing but the server's answers, and can only propose."""

from __future__ import annotations

from collections.abc import Callable
from os import _exit
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from pi_workflows_nb.wire.canonical_json import decode as decode_json
from pi_workflows_nb.wire.errors import (
    ConflictError,
    EffectRequestConflictError,
    NotFoundError,
    ProtocolError,
    SettingsChangedError,
)
from pi_workflows_nb.wire.identities import utf8
from pi_workflows_nb.wire.runner_messages import (
    RUN_AHEAD_SECONDS,
    AskPerson,
    AskSession,
    ChildProcess,
    EffectSettlement,
    End,
    Exiting,
    Finished,
    ReadRunState,
    Reservation,
    ReserveEffect,
    SettingsOf,
    SettingsSeen,
    SettingsState,
    SettleEffect,
    Snapshot,
    Started,
    Update,
    Value,
    encode,
    kind_of,
    revisions_of,
)
from pi_workflows_nb.wire.runner_messages import Passage as PassageMessage
from pi_workflows_nb.wire.runner_messages import RunState as RunStateMessage
from pi_workflows_nb.workflows.history import StoredValue
from pi_workflows_nb.workflows.store import (
    EffectOutcome,
    EffectReservation,
    NodeFinished,
    NodeStarted,
    Passage,
    ProposedTransition,
    Recovery,
    RunEnd,
    RunState,
    SettingsCopy,
)

if TYPE_CHECKING:
    from pi_workflows_nb.runner.output import AttemptLog
    from pi_workflows_nb.runner.transport import Transport

PATH: Final = "server://pi-workflows-state"
_NOTHING: Final = b"{}"
_reservation: Final = msgspec.json.Decoder(Reservation).decode
_settings: Final = msgspec.json.Decoder(SettingsState).decode
_run_state: Final = msgspec.json.Decoder(RunStateMessage).decode


class ServerBackedWorkflowStore:
    """An `ExecutionStore` over a runner's channel.

    `window` is how many proposals may have no answer while compute nodes go on; 1 waits for each. `path` is the name of
    the store wherever one is shown.
    """

    path = PATH
    parks = True
    asks_session = True

    def __init__(self, transport: Transport, log: AttemptLog, window: int) -> None:
        self._transport = transport
        self._log = log
        self._ahead = max(1, window) - 1
        self._revision = 0

    def initialize(self) -> RunState:
        """Begin the run, or the continuation."""
        return self._state("store.initializeRun")

    def prepare_resume(self) -> RunState:
        """Go on from the last durable boundary."""
        return self._state("store.prepareRunResume")

    def propose(self, transition: ProposedTransition) -> None:
        """Send a transition; returns at once when the node that starts is a compute node and the window allows it."""
        finished, started = transition.finished, transition.started
        if transition.end is not None and transition.end.request is not None:
            self._ask_session(transition.end, transition.end.request)
            return
        if finished is not None:
            self._log.end_attempt(finished.attempt_id)
        snapshot = Snapshot(
            transition.abandoned,
            None if transition.end is None else self._end(transition.end),
            None if finished is None else self._finished(finished),
            None if started is None else _started(started),
            [self._passage(passage) for passage in transition.through] if transition.through else UNSET,
        )
        attempt = started.attempt_id if finished is None and started is not None else None
        if finished is not None:
            attempt = finished.attempt_id
        transport = self._transport
        if finished is not None and finished.unless_changed is not None:
            self._propose_if_unchanged(snapshot, attempt)
            return
        transport.send(kind_of(snapshot), "store.writeSnapshot", encode(snapshot), self._revision, attempt)
        self._revision += revisions_of(snapshot)
        if transition.abandoned:
            self.leave()
        if started is not None and started.node_type == "compute":
            transport.wait(self._ahead, RUN_AHEAD_SECONDS)
        else:
            transport.wait(0)

    def _propose_if_unchanged(self, snapshot: Snapshot, attempt: str | None) -> None:
        answer = self._transport.ask(
            kind_of(snapshot), "store.writeSnapshot", encode(snapshot), self._revision, attempt, refusable=True
        )
        if answer.outcome == "rejected":
            raise SettingsChangedError(answer.error or "the settings have changed")
        self._revision += revisions_of(snapshot)

    def _ask_session(self, end: RunEnd, contract: bytes) -> None:
        attempt_id = end.attempt_id or ""
        if end.of_person:
            person = AskPerson(attempt_id, self._value(contract), end.detail or "", end.pause_ms)
            self._log.end_attempt(attempt_id)
            operation = "store.createHumanDecisionRequest"
            self._transport.ask("interaction.requested", operation, encode(person), self._revision, attempt_id)
            self._revision += 2
            return
        wish = encode(AskSession(attempt_id, self._value(contract), end.detail or ""))
        self._log.end_attempt(attempt_id)
        self._transport.ask("interaction.requested", "interaction.request", wish, self._revision, attempt_id)
        self._revision += 2

    def settings(self, mount: str) -> SettingsCopy:
        """The newest settings of a mount, or of the run."""
        wish = encode(SettingsOf(mount))
        answer = self._transport.ask("runner.progress", "store.findSettingsScope", wish, self._revision)
        found = _settings(self._transport.bytes_of(answer.result, self._revision))
        return SettingsCopy(mount, found.scope_id, found.change_number, self._stored(found.value))

    def settle(self) -> None:
        """Return when everything sent was answered."""
        self._transport.wait(0)

    def reserve_effect(
        self, attempt_id: str, effect_type: str, key: str, recovery: Recovery, request: bytes
    ) -> EffectReservation:
        """Have an effect recorded, or adopted."""
        wish = ReserveEffect(attempt_id, effect_type, key, recovery, self._value(request))
        answer = self._transport.ask(
            "effect.reserve", "store.reserveEffect", encode(wish), self._revision, attempt_id, refusable=True
        )
        if answer.outcome == "rejected":
            raise EffectRequestConflictError((answer.error or "").removeprefix("conflict: "))
        found = _reservation(self._transport.bytes_of(answer.result, self._revision))
        result = None if found.result is None else StoredValue(self._transport.bytes_of(found.result, self._revision))
        return EffectReservation(found.effect_id, found.state, result, found.attempt_number)

    def settle_effect(
        self,
        effect_id: str,
        outcome: EffectOutcome,
        *,
        result: bytes | None = None,
        error: str | None = None,
        external_ref: str | None = None,
    ) -> None:
        """Settle an effect without an end of its node; `ConflictError` when it is not being applied (any more)."""
        settlement = SettleEffect(
            effect_id,
            None if error is None else _plain(error),
            None if external_ref is None else _plain(external_ref),
            outcome,
            None if result is None else self._value(result),
        )
        answer = self._transport.ask(
            "effect.settle", "store.settleEffect", encode(settlement), self._revision, refusable=True
        )
        if answer.outcome == "rejected":
            raise ConflictError((answer.error or "").removeprefix("conflict: "))

    def publish_update(self, attempt_id: str, update_type: str, key: str, data: bytes) -> None:
        """Have an update stored."""
        update = Update(attempt_id, self._value(data), key, update_type)
        self._transport.ask("node.update", "store.publishUpdate", encode(update), self._revision, attempt_id)
        self._revision += 1

    def attend(self, wake: Callable[[], None]) -> None:
        """Have `settle` called when something must be sent again while a node's code runs."""
        self._transport.on_trouble = wake

    def leave(self, reason: str = "done", detail: str | None = None) -> None:
        """Say why this process ends, once everything is answered, and end it."""
        self._transport.wait(0)
        exiting = encode(Exiting(None if detail is None else _plain(detail), reason))  # type: ignore[arg-type]
        self._transport.ask("runner.exiting", "runner.exiting", exiting, self._revision)
        self._log.flush()
        _exit(0)

    def read_run_state(self, run_id: str) -> RunState | None:
        """The state of another run of the chain, None where there is none; `NotFoundError` for one of another chain."""
        wish = encode(ReadRunState(run_id))
        answer = self._transport.ask("runner.progress", "store.readRunState", wish, self._revision, refusable=True)
        if answer.outcome == "rejected":
            raise NotFoundError(answer.error or "the server does not say why")
        content = self._transport.bytes_of(answer.result, self._revision)
        return None if content == b"null" else self._read_state(content)

    def register_process(self, pid: int, start_identity: str) -> None:
        """Have a child of this process ended with it, also where it leaves the session or outlives the server.

        `NotFoundError` when there is no such child.
        """
        self._tell_of("process.register", pid, start_identity)

    def unregister_process(self, pid: int, start_identity: str) -> None:
        """Take it back: the child has ended."""
        self._tell_of("process.unregister", pid, start_identity)

    def _tell_of(self, operation: str, pid: int, start_identity: str) -> None:
        child = encode(ChildProcess(pid, start_identity))
        answer = self._transport.ask("runner.progress", operation, child, self._revision, refusable=True)
        if answer.outcome == "rejected":
            raise NotFoundError(answer.error or "the server does not say why")

    def _state(self, operation: str) -> RunState:
        answer = self._transport.ask("runner.progress", operation, _NOTHING, self._revision)
        if answer.revision is None:
            raise ProtocolError("the state of the run came without its revision")
        self._revision = answer.revision
        return self._read_state(self._transport.bytes_of(answer.result, self._revision))

    def _read_state(self, content: bytes) -> RunState:
        """The state with its values as stored ones, those that were too large for it fetched."""
        state = _run_state(content)
        return {
            "attemptCounts": decode_json(bytes(state.attempt_counts)),
            "input": self._stored(state.input),
            "passages": [
                {
                    "event": passed.event,
                    "mount": passed.mount,
                    "steps": passed.steps,
                    "value": StoredValue(passed.value.encode()),
                }
                for passed in state.passages
            ],
            "pending": None
            if state.pending is None
            else {
                "failedAt": state.pending.failed_at,
                "nodeId": state.pending.node_id,
                "tries": state.pending.tries,
            },
            "runId": state.run_id,
            "steps": [
                {
                    "attemptId": step.attempt_id,
                    "attemptNumber": step.attempt_number,
                    "error": step.error,
                    "finishedAt": step.finished_at,
                    "index": step.index,
                    "nodeId": step.node_id,
                    "nodeType": step.node_type,
                    "outcome": step.outcome,
                    "output": None if step.output is None else self._stored(step.output),
                    "startedAt": step.started_at,
                }
                for step in state.steps
            ],
            "title": state.title,
            "updates": None
            if state.updates is None
            else {"pairs": state.updates.pairs, "recent": state.updates.recent},
            "workflowName": state.workflow_name,
        }

    def _stored(self, value: Value) -> StoredValue:
        return StoredValue(self._transport.bytes_of(value, self._revision))

    def _value(self, data: bytes) -> Value:
        return self._transport.value(data, self._revision)

    def _finished(self, finished: NodeFinished) -> Finished:
        effect = finished.effect
        return Finished(
            finished.attempt_id,
            None
            if effect is None
            else EffectSettlement(
                effect.effect_id, None if effect.external_ref is None else _plain(effect.external_ref), effect.outcome
            ),
            None if finished.error is None else _plain(finished.error),
            finished.finished_at,
            finished.node_id,
            finished.outcome,
            None if finished.output is None else self._value(finished.output),
            finished.step,
            _seen(finished.unless_changed),
        )

    def _passage(self, passage: Passage) -> PassageMessage:
        settings = None if passage.settings is None else self._value(passage.settings)
        return PassageMessage(passage.event, passage.mount, settings, self._value(passage.value))

    def _end(self, end: RunEnd) -> End:
        return End(
            end.detail,
            end.due_at,
            None if end.error is None else _plain(end.error),
            None if end.output is None else self._value(end.output),
            end.pause_ms,
            end.status,
        )


def _started(started: NodeStarted) -> Started:
    return Started(
        started.attempt_id,
        started.deadline_at,
        started.node_id,
        started.node_type,
        started.number,
        started.retry_on_timeout,
        started.started_at,
        _seen(started.settings),
    )


def _seen(settings: SettingsCopy | None) -> SettingsSeen | UnsetType:
    return UNSET if settings is None else SettingsSeen(settings.change_number, settings.mount)


def _plain(text: str) -> str:
    """A text without lone surrogates, which no text of the file may hold."""
    return text if text.isascii() else utf8(text).decode()
