"""What each operation of a runner does, as functions of one transaction.

Each gives what is done in the transaction and what follows its commit. What a message must satisfy by itself is checked
before, and raises `ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import msgspec

from ..state import blobs, mutation, run_effects, runners, runs, setting_scopes, transitions
from ..state.run_state import run_state
from ..state.steps import Receipt
from ..wire import canonical_json, identities
from ..wire.decoding import decoded
from ..wire.errors import ConflictError, PiWorkflowsError, ProtocolError, StaleResourceError
from ..wire.runner_messages import (
    AskPerson,
    AskSession,
    ChildProcess,
    EffectSettlement,
    Nothing,
    ReadRunState,
    Reservation,
    ReserveEffect,
    RunnerMessage,
    SettingsOf,
    SettingsSeen,
    SettingsState,
    SettleEffect,
    Snapshot,
    Update,
    encode,
    kind_of,
)
from .committer import Transaction
from .contents import OFFERED_BYTES, Prepared, Transfers
from .launch import Launch, Progress
from .processes import ProcessRegistry

if TYPE_CHECKING:
    from .server import WorkflowServer

T = TypeVar("T")
_snapshot = msgspec.json.Decoder(Snapshot)
_reserve = msgspec.json.Decoder(ReserveEffect)
_settle = msgspec.json.Decoder(SettleEffect)
_update = msgspec.json.Decoder(Update)
_nothing = msgspec.json.Decoder(Nothing)
_other_run = msgspec.json.Decoder(ReadRunState)
_settings_of = msgspec.json.Decoder(SettingsOf)
_ask_person = msgspec.json.Decoder(AskPerson)
_ask_session = msgspec.json.Decoder(AskSession)
_child = msgspec.json.Decoder(ChildProcess)


class DeclinedError(PiWorkflowsError):
    """A wish that is not granted, to a runner that has kept to the protocol and goes on."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a runner hears: `result` is canonical JSON. `kept` says that its receipt is written already."""

    outcome: Literal["accepted", "adopted", "rejected", "claimLost"] = "accepted"
    revision: int | None = None
    result: bytes | None = None
    error: str | None = None
    kept: bool = False


Operation: TypeAlias = tuple[Callable[[Transaction], Answer], Callable[[], None] | None]


def payload(decoder: msgspec.json.Decoder[T], message: RunnerMessage) -> T:
    """Decode a message's payload, strictly; one that is not canonical is a `ProtocolError`."""
    return decoded(decoder, message.payload)


class Operations:
    """The operations of one runner. `on_first_question` rides with the first question for its run's state."""

    def __init__(
        self,
        server: WorkflowServer,
        launch: Launch,
        progress: Progress,
        transfers: Transfers,
        registry: ProcessRegistry,
        on_first_question: Callable[[Transaction], None],
    ) -> None:
        self._server = server
        self._launch = launch
        self._run_id = launch.run_id
        self._claim = launch.claim
        self._progress = progress
        self._transfers = transfers
        self._registry = registry
        self._on_first_question = on_first_question
        self._operations: Final[dict[str, Callable[[RunnerMessage], Operation]]] = {
            "store.initializeRun": self._state_wanted,
            "store.prepareRunResume": self._state_wanted,
            "store.readRunState": self._other_run,
            "store.findSettingsScope": self._settings,
            "store.reserveEffect": self._reserve,
            "store.settleEffect": self._settle,
            "store.publishUpdate": self._update,
            "interaction.request": self._ask_session,
            "store.createHumanDecisionRequest": self._ask_person,
            "process.register": self._process,
            "process.unregister": self._process,
        }

    def of(self, message: RunnerMessage) -> Operation:
        """What a message asks for."""
        return self._operations.get(message.operation, _later)(message)

    # -- the hot path -------------------------------------------------------------------------------------------------

    def snapshot(self, message: RunnerMessage, line: bytes) -> Operation:
        """One transition of the run, its receipt included."""
        snapshot = payload(_snapshot, message)
        _check_snapshot(message, snapshot)
        run_id, claim, progress = self._run_id, self._claim, self._progress
        finished, started, end = snapshot.finished, snapshot.started, snapshot.end
        receipt = Receipt(self._launch.runner_epoch, message.message_id, identities.sha256(line))
        output = self._transfers.prepared(finished.output if finished is not None else None)
        final = self._transfers.prepared(end.output if end is not None else None)
        passages = [
            (
                passage.event,
                passage.mount,
                _whole(self._transfers.given(passage.value)),
                None if passage.settings is None else _whole(self._transfers.given(passage.settings)),
            )
            for passage in ([] if snapshot.through is msgspec.UNSET else snapshot.through)
        ]
        expected = message.expected_revision
        simple = end is None and (finished is None or finished.effect is None)

        def apply(transaction: Transaction) -> Answer:
            steps = transaction.steps
            steps.check(run_id, claim, expected, snapshot)
            if finished is not None and finished.effect is not None:
                run_effects.require_applying(transaction.connection, claim.resource_id, finished.effect.effect_id)
            if finished is not None and finished.unless_changed is not msgspec.UNSET:
                self._require_unchanged(transaction, finished.unless_changed)
            stored = self._transfers.stored(output, transaction)
            if started is not None and progress.cancel_interrupted:
                transitions.cancel_interrupted(transaction.sql(), run_id, transaction.now)
            cursor = steps.apply(run_id, claim, expected, snapshot, stored, receipt if simple else None, passages)
            revision = cursor.revision
            if not simple:
                revision = self._apply_rest(transaction, snapshot, stored, final, revision)
            transaction.changed.add(run_id)
            return Answer(revision=revision, kept=simple)

        return apply, lambda: self._committed(snapshot)

    def _require_unchanged(self, transaction: Transaction, seen: SettingsSeen) -> None:
        scope = setting_scopes.find(transaction.sql(), self._run_id, seen.mount_path)
        if scope is not None and scope.change_number != seen.change_number:
            raise DeclinedError(f"the settings are at change number {scope.change_number}, not {seen.change_number}")

    def _settings(self, message: RunnerMessage) -> Operation:
        wanted = payload(_settings_of, message).mount_path

        def settings(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            mutation.check_lease(connection, self._claim, transaction.now)
            scope = setting_scopes.find(connection, self._run_id, wanted)
            if scope is None:
                raise ProtocolError(f"there are no settings of {wanted or 'the run'!r}")
            value = blobs.value_of(connection, scope.current, OFFERED_BYTES // 2)
            return Answer(result=encode(SettingsState(scope.change_number, scope.scope_id, value)))

        return settings, None

    def _apply_rest(
        self,
        transaction: Transaction,
        snapshot: Snapshot,
        output: tuple[bytes, bytes] | bytes | None,
        final: Prepared,
        revision: int,
    ) -> int:
        connection, now, finished = transaction.sql(), transaction.now, snapshot.finished
        digest = output[0] if isinstance(output, tuple) else output
        if finished is not None and finished.effect is not None:
            run_effects.settle(connection, self._run_id, finished.effect, digest, finished.error, now)
        if snapshot.end is not None:
            given = self._transfers.stored(final, transaction)
            result = blobs.put_json_bytes(connection, given[1], now) if isinstance(given, tuple) else given
            revision = transitions.end(connection, self._run_id, self._claim, snapshot.end, result, now)
        return revision

    def _committed(self, snapshot: Snapshot) -> None:
        progress = self._progress
        if snapshot.finished is not None:
            progress.active = None
            progress.boundaries += 1
            self._transfers.release(snapshot.finished.output)
        if snapshot.through is not msgspec.UNSET:
            for passage in snapshot.through:
                self._transfers.release(passage.value)
        if snapshot.started is not None:
            progress.active = started = snapshot.started
            progress.active_until = None
            if started.deadline_at is not None:
                active = self._server.lateness.active(self._server.clock.monotonic())
                progress.active_until = active + (started.deadline_at - started.started_at) / 1000
            progress.attempts.append(snapshot.started.attempt_id)
            progress.cancel_interrupted = False
        if snapshot.end is not None:
            progress.ended = True
            self._server.run_ended(self._run_id)
        if snapshot.abandoned:
            progress.abandoned = True

    # -- questions ----------------------------------------------------------------------------------------------------

    def _state_wanted(self, message: RunnerMessage) -> Operation:
        payload(_nothing, message)
        resume, progress = message.operation == "store.prepareRunResume", self._progress

        def state(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            if progress.begun:
                raise ConflictError("the state of the run was given already")
            self._on_first_question(transaction)
            found = run_state(connection, self._run_id, transaction.now)
            event, said = (
                ("run_resume_prepared", {}) if resume else ("run_initialized", {"workflowName": found.workflow_name})
            )
            revision = transitions.record_engine_event(
                connection, self._run_id, self._claim, event, said, transaction.now
            )
            return Answer(revision=revision, result=encode(found))

        def begun() -> None:
            progress.begun = True

        return state, begun

    def _other_run(self, message: RunnerMessage) -> Operation:
        wanted = payload(_other_run, message).run_id

        def state(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            mutation.check_lease(connection, self._claim, transaction.now)
            found = runs.find(connection, wanted)
            if found is None:
                return Answer(result=b"null")
            if found.root_run_id != runs.read(connection, self._run_id).root_run_id:
                raise DeclinedError(f"run {wanted} is not of the chain of run {self._run_id}")
            return Answer(result=encode(run_state(connection, wanted, transaction.now)))

        return state, None

    # -- effects and updates ------------------------------------------------------------------------------------------

    def _reserve(self, message: RunnerMessage) -> Operation:
        wish = payload(_reserve, message)
        _require_attempt(message, wish.attempt_id)
        stored = run_effects.payload_of(wish.recovery, self._transfers.given(wish.request))

        def reserve(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            run = self._at(transaction, message)
            active = connection.execute(
                "SELECT 1 FROM node_attempts WHERE attempt_id = ? AND run_id = ? AND status = 'running'",
                (wish.attempt_id, self._run_id),
            ).fetchone()
            if active is None:
                raise ConflictError(f"attempt {wish.attempt_id} of run {self._run_id} is not running")
            given = run_effects.reserve(connection, run, self._claim, wish, stored, transaction.now)
            transaction.changed.add(run.run_id)
            result = None if given.result is None else blobs.value_of(connection, given.result, OFFERED_BYTES // 2)
            return Answer(
                revision=run.revision,
                result=encode(Reservation(given.attempt_number, given.effect_id, result, given.state)),
            )

        return reserve, None

    def _settle(self, message: RunnerMessage) -> Operation:
        wish = payload(_settle, message)
        if wish.result is not None and wish.outcome != "applied":
            raise ProtocolError("only an effect that was applied has a result")
        prepared = None if wish.result is None else self._transfers.given(wish.result)
        settlement = EffectSettlement(wish.effect_id, wish.external_ref, wish.outcome)

        def settle(transaction: Transaction) -> Answer:
            connection, now = transaction.sql(), transaction.now
            run = self._at(transaction, message)
            mutation.check_lease(connection, self._claim, now)
            try:
                run_effects.require_applying(connection, run.resource_id, wish.effect_id)
            except ConflictError as error:
                raise DeclinedError(f"conflict: {error}") from None
            result = None if prepared is None else blobs.put_json_bytes(connection, prepared, now)
            run_effects.settle(connection, run.run_id, settlement, result, wish.error, now)
            transaction.changed.add(run.run_id)
            return Answer(revision=run.revision)

        return settle, None

    def _update(self, message: RunnerMessage) -> Operation:
        update = payload(_update, message)
        _require_attempt(message, update.attempt_id)
        data = self._transfers.given(update.data)

        def publish(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            self._at(transaction, message)
            revision = transitions.record_update(
                connection,
                self._run_id,
                self._claim,
                update.attempt_id,
                update.type,
                update.key,
                data,
                transaction.now,
            )
            transaction.changed.add(self._run_id)
            return Answer(revision=revision)

        return publish, None

    def _ask_session(self, message: RunnerMessage) -> Operation:
        wish = payload(_ask_session, message)
        _require_attempt(message, wish.attempt_id)
        contract = _whole(self._transfers.given(wish.contract))

        def ask(transaction: Transaction) -> Answer:
            connection = transaction.sql()
            run = self._at(transaction, message)
            mutation.check_lease(connection, self._claim, transaction.now)
            transitions.ask_session(
                connection, run, self._claim, wish.attempt_id, wish.detail, contract, transaction.now
            )
            transaction.changed.add(self._run_id)
            return Answer(revision=run.revision)

        return ask, self._asked

    def _ask_person(self, message: RunnerMessage) -> Operation:
        wish = payload(_ask_person, message)
        _require_attempt(message, wish.attempt_id)
        asked = canonical_json.decode(_whole(self._transfers.given(wish.decision)))

        def ask(transaction: Transaction) -> Answer:
            connection, now = transaction.sql(), transaction.now
            run = self._at(transaction, message)
            mutation.check_lease(connection, self._claim, now)
            try:
                transitions.ask_person(
                    connection, run, self._claim, wish.attempt_id, wish.detail, asked, wish.pause_ms, now
                )
            except (KeyError, TypeError) as error:
                raise ProtocolError(f"the request of a decision lacks a part: {error}") from None
            transaction.changed.add(self._run_id)
            return Answer(revision=run.revision)

        return ask, self._asked

    def _asked(self) -> None:
        progress = self._progress
        progress.active = None
        progress.boundaries += 1
        progress.ended = True
        self._server.run_ended(self._run_id)

    def _at(self, transaction: Transaction, message: RunnerMessage) -> runs.RunRow:
        run = runs.read(transaction.sql(), self._run_id)
        if run.revision != message.expected_revision:
            raise StaleResourceError(f"the run is at revision {run.revision}, not {message.expected_revision}")
        return run

    # -- processes ----------------------------------------------------------------------------------------------------

    def _process(self, message: RunnerMessage) -> Operation:
        child, epoch, registry = payload(_child, message), self._launch.runner_epoch, self._registry
        register = message.operation == "process.register"
        if register and (problem := registry.problem(epoch, child.pid, child.start_identity)) is not None:
            return _declined(problem), None
        result = runners.registration(child.pid, child.start_identity, registered=register)
        if register:
            # Ended with its runner from now on, whether or not the file can be written just now.
            registry.register(epoch, child.pid, child.start_identity)
            return lambda _: Answer(result=result), None
        return lambda _: Answer(result=result), lambda: registry.unregister(epoch, child.pid, child.start_identity)


def _check_snapshot(message: RunnerMessage, snapshot: Snapshot) -> None:
    finished, started, end = snapshot.finished, snapshot.started, snapshot.end
    if finished is None and started is None and end is None and snapshot.through is msgspec.UNSET:
        raise ProtocolError("an empty transition")
    if message.kind != kind_of(snapshot):
        raise ProtocolError(f"this transition is a {kind_of(snapshot)}, not a {message.kind}")
    first = finished or started
    if message.attempt_id != (None if first is None else first.attempt_id):
        raise ProtocolError("the message names another attempt than its transition")
    if finished is not None and (finished.outcome == "ok") != (finished.output is not None):
        raise ProtocolError("an attempt has an output exactly when it ended well")
    if end is None:
        return
    parks = end.status in ("waiting", "sleeping")
    if started is not None and not parks:
        raise ProtocolError("a run that ends starts no node")
    given = (end.due_at is not None) + (end.pause_ms is not None)
    if given != 1 if end.status == "sleeping" else given > parks:
        raise ProtocolError(
            "a sleep has one moment at which it is over, a wait may have one, an end of the run has none"
        )


def _require_attempt(message: RunnerMessage, attempt_id: str) -> None:
    if message.attempt_id != attempt_id:
        raise ProtocolError("the message names another attempt than its payload")


def _whole(value: bytes | blobs.LargeValue) -> bytes:
    return value if isinstance(value, bytes) else b"".join(value.parts())


def _declined(text: str) -> Callable[[Transaction], Answer]:
    def decline(_: Transaction) -> Answer:
        raise DeclinedError(text)

    return decline


def _later(message: RunnerMessage) -> Operation:
    if not isinstance(canonical_json.check(bytes(message.payload)), dict):
        raise ProtocolError(f"the payload of {message.operation} is no object")
    return _declined(f"{message.operation} is not served by this version"), None
