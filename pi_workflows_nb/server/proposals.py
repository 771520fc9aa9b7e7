"""What a runner says, checked and applied strictly in order; after the first refusal everything else is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..state import blobs, run_effects, runners, runs, transitions
from ..state.runners import RunnerOutcome
from ..state.steps import Receipt
from ..wire import canonical_json, identities
from ..wire.errors import (
    EffectRequestConflictError,
    PiWorkflowsError,
    ProtocolError,
    StaleClaimError,
    StateUnavailableError,
)
from ..wire.runner_messages import (
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    RESPONSE_SCHEMA,
    ContentRead,
    ContentWrite,
    Exiting,
    ReserveEffect,
    RunnerMessage,
    RunnerResponse,
    Snapshot,
    Update,
    encode,
)
from .committer import Transaction
from .contents import Prepared, Transfers
from .launch import Launch, Progress

if TYPE_CHECKING:
    from .server import WorkflowServer

log = logging.getLogger(__name__)

NOT_YET: Final = frozenset(
    {
        "interaction.request",
        "store.createHumanDecisionRequest",
        "interaction.accept",
        "interaction.reject",
        "notification.request",
        "presentation.request",
        "store.settleEffect",
        "store.readRunState",
        "store.findSettingsScope",
        "store.ensureSettingsScope",
        "store.getSettingsScopeAtChange",
        "store.readResolvedHumanDecision",
        "process.register",
        "process.unregister",
    }
)
_message = msgspec.json.Decoder(RunnerMessage).decode
_snapshot = msgspec.json.Decoder(Snapshot).decode
_reserve = msgspec.json.Decoder(ReserveEffect).decode
_update = msgspec.json.Decoder(Update).decode
_read = msgspec.json.Decoder(ContentRead).decode
_write = msgspec.json.Decoder(ContentWrite).decode
_exiting = msgspec.json.Decoder(Exiting).decode


class NotStoredYetError(PiWorkflowsError):
    """A proposal that came before an earlier one of the same runner could be stored."""


class Proposals:
    """Hears one runner. `send` writes a frame to it; `end` ends it with an outcome, at once or with grace."""

    def __init__(
        self,
        server: WorkflowServer,
        launch: Launch,
        progress: Progress,
        transfers: Transfers,
        *,
        send: Callable[[bytes], None],
        on_ready: Callable[[], None],
        on_first_question: Callable[[Transaction], None],
        end: Callable[[RunnerOutcome, bool], None],
    ) -> None:
        self._server = server
        self._launch = launch
        self._claim = launch.claim
        self._progress = progress
        self._transfers = transfers
        self._send = send
        self._on_ready = on_ready
        self._on_first_question = on_first_question
        self._end = end

    def refuse_stream(self, text: str) -> None:
        """A runner that does not keep to the protocol is stopped; nothing else is hurt."""
        self._progress.refused = True
        self._progress.diagnostics.append(f"protocol: {text[:500]}")
        log.warning("runner of %s stopped: %s", self._launch.run_id, text[:200])
        self._end("crashed", True)

    def on_frames(self, lines: list[bytes]) -> None:
        """Take the frames of one read."""
        for line in lines:
            try:
                self._on_frame(line)
            except (PiWorkflowsError, msgspec.MsgspecError, ValueError) as error:
                self.refuse_stream(str(error))
                return

    def _on_frame(self, line: bytes) -> None:
        message = _message(line)
        if encode(message) != line:
            canonical_json.check(line)
        launch = self._launch
        if (
            message.schema != MESSAGE_SCHEMA
            or message.launch_schema != LAUNCH_SCHEMA
            or message.run_id != launch.run_id
            or message.runner_epoch != launch.runner_epoch
            or message.generation != self._claim.generation
        ):
            raise ProtocolError("a message of another run, generation or runner epoch")
        operation = message.operation
        if operation == "store.writeSnapshot":
            self._on_snapshot(message, line)
        elif operation == "runner.ready":
            self._progress.ready = True
            self._on_ready()
            self._answer(message, "accepted", None)
        elif operation == "runner.exiting":
            self._progress.exiting = _exiting(message.payload)
            self._answer(message, "accepted", None)
        elif operation in ("store.initializeRun", "store.prepareRunResume"):
            self._on_state_wanted(message, line)
        elif operation == "store.reserveEffect":
            self._on_reserve(message, line)
        elif operation == "store.publishUpdate":
            self._on_update(message, line)
        elif operation == "content.write":
            self._on_part(message)
        elif operation == "content.read":
            wish = _read(message.payload)
            self._submit(message, None, lambda transaction: self._transfers.read(wish, transaction))
        elif operation in NOT_YET:
            self._answer(message, "rejected", None, error=f"{operation} is not served by this version")
        else:
            raise ProtocolError(f"unknown operation {operation[:80]!r}")

    def _on_part(self, message: RunnerMessage) -> None:
        try:
            self._transfers.write(_write(message.payload))
        except StateUnavailableError as error:
            self._answer(message, "rejected", None, error=f"unavailable: {error}")
        else:
            self._answer(message, "accepted", None)

    def _on_snapshot(self, message: RunnerMessage, line: bytes) -> None:
        snapshot = _snapshot(message.payload)
        run_id, claim, progress = self._launch.run_id, self._claim, self._progress
        finished, started, end = snapshot.finished, snapshot.started, snapshot.end
        if finished is None and started is None and end is None:
            raise ProtocolError("an empty transition")
        receipt = Receipt(self._launch.runner_epoch, message.message_id, identities.sha256(line))
        output = self._transfers.prepared(finished.output if finished is not None else None)
        final = self._transfers.prepared(end.output if end is not None else None)
        expected = message.expected_revision
        simple = end is None and (finished is None or finished.effect is None)

        def apply(transaction: Transaction) -> int:
            self._admit(message.message_id)
            steps = transaction.steps
            steps.check(run_id, claim, expected, snapshot)
            if finished is not None and finished.effect is not None:
                run_effects.require_applying(transaction.connection, finished.effect.effect_id)
            stored = self._transfers.stored(output, transaction)
            if started is not None and progress.cancel_interrupted:
                transitions.cancel_interrupted(transaction.sql(), run_id, transaction.now)
            cursor = steps.apply(run_id, claim, expected, snapshot, stored, receipt if simple else None)
            revision = cursor.revision
            if not simple:
                revision = self._apply_rest(transaction, snapshot, stored, final, revision)
                runners.record_receipt(
                    transaction.sql(),
                    receipt.runner_epoch,
                    receipt.message_id,
                    receipt.fingerprint,
                    revision,
                    None,
                    transaction.now,
                )
            transaction.changed.add(run_id)
            return revision

        def done(revision: int | None, error: BaseException | None) -> None:
            if error is None:
                self._committed(snapshot)
                self._answer(message, "accepted", revision)
            else:
                self._failed(message, receipt, error)

        self._server.committer.submit_with(apply, done)

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
            run_effects.settle(connection, self._launch.run_id, finished.effect, digest, finished.error, now)
        if snapshot.end is not None:
            given = self._transfers.stored(final, transaction)
            result = blobs.put_json_bytes(connection, given[1], now) if isinstance(given, tuple) else given
            revision = transitions.end(connection, self._launch.run_id, self._claim, snapshot.end, result, now)
        return revision

    def _admit(self, message_id: str) -> None:
        progress = self._progress
        if progress.refused:
            raise StaleClaimError("refused, since an earlier proposal of this runner was", "missingAuthority")
        if progress.resend_from is not None and progress.resend_from != message_id:
            raise NotStoredYetError("an earlier proposal is not stored yet")

    def _committed(self, snapshot: Snapshot) -> None:
        progress = self._progress
        progress.resend_from = None
        if snapshot.finished is not None:
            progress.active = None
            progress.boundaries += 1
        if snapshot.started is not None:
            progress.active = snapshot.started
            progress.last_attempt = snapshot.started.attempt_id
            progress.cancel_interrupted = False
        if snapshot.end is not None:
            progress.ended = True
            self._server.run_ended(self._launch.run_id)
        if snapshot.abandoned:
            progress.abandoned = True

    def _failed(self, message: RunnerMessage, receipt: Receipt, error: BaseException) -> None:
        progress = self._progress
        if isinstance(error, StateUnavailableError | NotStoredYetError):
            if progress.resend_from is None:
                progress.resend_from = message.message_id
            self._answer(message, "rejected", None, error=f"unavailable: {error}")
            return
        if isinstance(error, EffectRequestConflictError):
            # The fault of the node, which fails with it; the runner has kept to the protocol.
            self._answer(message, "rejected", None, error=f"conflict: {error}")
            return

        def adopt(transaction: Transaction) -> int | None:
            stored = runners.receipt(transaction.sql(), receipt.runner_epoch, receipt.message_id)
            if stored is not None and stored[0] == receipt.fingerprint:
                return stored[2]
            raise ProtocolError("no receipt")

        def adopted(revision: int | None, missing: BaseException | None) -> None:
            if missing is None:
                self._answer(message, "adopted", revision)
                return
            progress.refused = True
            outcome = "claimLost" if isinstance(error, StaleClaimError) else "rejected"
            progress.diagnostics.append(f"{message.operation}: {error}")
            self._answer(message, outcome, None, error=str(error)[:2000])
            self._end("claimLost" if outcome == "claimLost" else "crashed", False)

        progress.refused = True
        self._server.committer.submit_with(adopt, adopted)

    def _submit(
        self, message: RunnerMessage, receipt: Receipt | None, operation: Callable[[Transaction], dict[str, Any]]
    ) -> None:
        """An operation with a result. `revision` in the result is the run's; the rest goes to the runner."""

        def apply(transaction: Transaction) -> tuple[int | None, bytes]:
            self._admit(message.message_id)
            result = operation(transaction)
            revision = result.pop("revision", None)
            data = canonical_json.encode(result)
            if receipt is not None:
                runners.record_receipt(
                    transaction.sql(),
                    receipt.runner_epoch,
                    receipt.message_id,
                    receipt.fingerprint,
                    revision,
                    None,
                    transaction.now,
                )
            return revision, data

        def done(given: tuple[int | None, bytes] | None, error: BaseException | None) -> None:
            if given is not None:
                self._progress.resend_from = None
                self._answer(message, "accepted", given[0], result=given[1])
            elif error is not None:
                self._failed(message, receipt or Receipt(self._launch.runner_epoch, message.message_id, b""), error)

        self._server.committer.submit_with(apply, done)

    def _receipt(self, message: RunnerMessage, line: bytes) -> Receipt:
        return Receipt(self._launch.runner_epoch, message.message_id, identities.sha256(line))

    def _on_state_wanted(self, message: RunnerMessage, line: bytes) -> None:
        resume = message.operation == "store.prepareRunResume"
        run_id = self._launch.run_id

        def state(transaction: Transaction) -> dict[str, Any]:
            connection = transaction.sql()
            self._on_first_question(transaction)
            found = runs.run_state(connection, run_id)
            event, payload = (
                ("run_resume_prepared", {}) if resume else ("run_initialized", {"workflowName": found["workflowName"]})
            )
            revision = transitions.record_engine_event(connection, run_id, self._claim, event, payload, transaction.now)
            return {"revision": revision, **found}

        self._submit(message, self._receipt(message, line), state)

    def _on_reserve(self, message: RunnerMessage, line: bytes) -> None:
        wish = _reserve(message.payload)
        request = canonical_json.decode(self._transfers.bytes_of(wish.request))

        def reserve(transaction: Transaction) -> dict[str, Any]:
            connection = transaction.sql()
            run = runs.read(connection, self._launch.run_id)
            given = run_effects.reserve(connection, run, self._claim, wish, request, transaction.now)
            transaction.changed.add(run.run_id)
            return {
                "attemptNumber": given.attempt_number,
                "effectId": given.effect_id,
                "result": None if given.result is None else canonical_json.decode(given.result),
                "revision": run.revision,
                "state": given.state,
            }

        self._submit(message, self._receipt(message, line), reserve)

    def _on_update(self, message: RunnerMessage, line: bytes) -> None:
        update = _update(message.payload)
        data = self._transfers.bytes_of(update.data)

        def publish(transaction: Transaction) -> dict[str, Any]:
            connection = transaction.sql()
            revision = transitions.record_update(
                connection,
                self._launch.run_id,
                self._claim,
                update.attempt_id,
                update.type,
                update.key,
                data,
                transaction.now,
            )
            transaction.changed.add(self._launch.run_id)
            return {"revision": revision}

        self._submit(message, self._receipt(message, line), publish)

    def _answer(
        self,
        message: RunnerMessage,
        outcome: str,
        revision: int | None,
        *,
        result: bytes | None = None,
        error: str | None = None,
    ) -> None:
        self._send(
            encode(
                RunnerResponse(
                    error=error,
                    message_id=message.message_id,
                    outcome=outcome,  # type: ignore[arg-type]
                    result=None if result is None else self._transfers.offer(result),
                    revision=revision,
                    schema=RESPONSE_SCHEMA,
                )
            )
        )
