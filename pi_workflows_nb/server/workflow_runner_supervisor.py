"""One runner's life as the server sees it: launch, handshake, proposals in order, exit.

The runner can only propose. What it proposes is applied strictly in order and under the claim this supervisor holds;
after the first refusal everything else of that runner is refused. Its exit is its wait status, never the end of its
stream, and what the exit means for the run is one transition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..state import blobs, mutation, run_effects, runners, runs, transitions
from ..state.mutation import Claim
from ..state.runners import RunnerOutcome
from ..state.steps import Receipt
from ..wire import canonical_json, identities
from ..wire.errors import PiWorkflowsError, ProtocolError, StaleClaimError, StateUnavailableError
from ..wire.runner_messages import (
    COMMAND_SCHEMA,
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    RESPONSE_SCHEMA,
    ContentRead,
    ContentWrite,
    Exiting,
    Finished,
    LaunchEnvelope,
    ReserveEffect,
    RunnerCommand,
    RunnerMessage,
    RunnerResponse,
    Snapshot,
    Started,
    Update,
    encode,
)
from . import logs, processes
from .channel import FrameChannel
from .committer import Transaction
from .contents import Transfers

if TYPE_CHECKING:
    from .nursery import Child
    from .server import WorkflowServer

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 15.0
OVERDUE_SECONDS: Final = 5.0
CRASHES: Final = 3
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
    resend_from: str | None = None
    diagnostics: list[str] = field(default_factory=list)


class WorkflowRunnerSupervisor:
    """Starts, hears and ends the runner of one generation of one run."""

    def __init__(self, server: WorkflowServer, launch: Launch) -> None:
        self.server = server
        self.launch = launch
        self.claim = launch.claim
        self.progress = Progress(cancel_interrupted=launch.command == "resume")
        self.outcome: RunnerOutcome | None = None
        self.child: Child | None = None
        self.log_path = server.logs / f"{launch.runner_epoch}.log"
        self._channel: FrameChannel | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transfers = Transfers(server.transfers, launch.runner_epoch)
        self._stopping: asyncio.Task[int | None] | None = None

    # -- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From fork to exit. Never raises: whatever happens is recorded as the runner's outcome."""
        try:
            await self._start()
        except (TimeoutError, PiWorkflowsError, OSError) as error:
            self.progress.diagnostics.append(str(error) or "the runner did not answer within 15 s of its start")
            if self.child is None:
                await self._finish(None, spawned=False)
                return
            self.stop("crashed")
        assert self.child is not None
        status = await self.child.exited
        if self._stopping is not None:
            await self._stopping
        # What the runner wrote before it ended is read before its end is judged.
        for _ in range(2):
            await asyncio.sleep(0)
        if self._channel is not None:
            self._channel.close()
        await self._finish(status, spawned=True)

    async def _start(self) -> None:
        server, launch = self.server, self.launch
        self.child = await server.nursery.spawn(
            mode="run",
            environment=server.environments.get(launch.run_id),
            folder=launch.project_path,
            log=self.log_path,
            epoch=launch.runner_epoch,
        )
        self._channel = FrameChannel(self._on_frames, self._on_closed)
        channel = self._channel
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=self.child.socket)
        channel.send(encode(launch.envelope))
        await asyncio.wait_for(asyncio.shield(self._ready), HANDSHAKE_SECONDS)
        child = self.child

        def running(transaction: Transaction) -> None:
            connection = transaction.sql()
            transitions.mark_running(connection, launch.run_id, self.claim, transaction.now)
            runners.record_ready(connection, launch.runner_epoch, child.pid, child.identity, transaction.now)
            transaction.changed.add(launch.run_id)

        await server.committer.submit(running)
        channel.send(
            encode(
                RunnerCommand(
                    command=launch.command,  # type: ignore[arg-type]
                    parent_run_id=launch.parent_run_id,
                    schema=COMMAND_SCHEMA,
                    source=self._transfers.offer(launch.source),
                    window=server.run_ahead,
                )
            )
        )

    def stop(self, outcome: RunnerOutcome) -> None:
        """End the runner's group: SIGTERM, 2 s, SIGKILL. It was fenced before, or will be by what its exit means."""
        if self.outcome is None:
            self.outcome = outcome
        if self._stopping is None and self.child is not None:
            self._stopping = asyncio.get_running_loop().create_task(self.child.stop())

    def kill(self, outcome: RunnerOutcome) -> None:
        """End the runner's group at once."""
        if self.outcome is None:
            self.outcome = outcome
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    async def _finish(self, status: int | None, *, spawned: bool) -> None:
        launch, progress = self.launch, self.progress
        outcome: RunnerOutcome
        if self.outcome is not None:
            outcome = self.outcome
        elif status == 0 and progress.exiting is not None:
            outcome = "exited"
        else:
            outcome = "crashed"
        signal_name = signal.Signals(-status).name if status is not None and status < 0 else None
        code = status if status is not None and status >= 0 else None
        tail = logs.tail(self.log_path, runners.DIAGNOSTIC_BYTES) if outcome == "crashed" else ""
        diagnostic = "\n".join([*progress.diagnostics, tail]).strip()
        logs.attribute(self.log_path, progress.last_attempt)
        self._transfers.close()

        def exited(transaction: Transaction) -> None:
            connection, now = transaction.sql(), transaction.now
            runners.record_exit(connection, launch.runner_epoch, outcome, code, signal_name, diagnostic, now)
            run = runs.find(connection, launch.run_id)
            if run is None:
                return
            transaction.changed.add(launch.run_id)
            if run.status != "running" or run.generation != self.claim.generation or run.owner_id is None:
                return
            park_after_exit(connection, run, progress, outcome, _cause(status, spawned, progress), now)

        while True:
            try:
                await self.server.committer.submit(exited)
            except StateUnavailableError:
                await asyncio.sleep(0.5)
            except StaleClaimError:
                break
            else:
                break
        if not self._ready.done():
            self._ready.cancel()
        self.server.supervisor_done(self)

    # -- what it says -------------------------------------------------------------------------------------------------

    def _on_closed(self, error: Exception | None) -> None:
        if error is not None:
            self._refuse_stream(str(error))

    def _refuse_stream(self, text: str) -> None:
        """A runner that does not keep to the protocol is stopped; nothing else is hurt."""
        self.progress.refused = True
        self.progress.diagnostics.append(f"protocol: {text[:500]}")
        log.warning("runner of %s stopped: %s", self.launch.run_id, text[:200])
        self.kill("crashed")

    def _on_frames(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self._on_frame(line)
            except (PiWorkflowsError, msgspec.MsgspecError, ValueError) as error:
                self._refuse_stream(str(error))
                return

    def _on_frame(self, line: bytes) -> None:
        message = _message(line)
        if encode(message) != line:
            canonical_json.check(line)
        launch = self.launch
        if (
            message.schema != MESSAGE_SCHEMA
            or message.launch_schema != LAUNCH_SCHEMA
            or message.run_id != launch.run_id
            or message.runner_epoch != launch.runner_epoch
            or message.generation != self.claim.generation
        ):
            raise ProtocolError("a message of another run, generation or runner epoch")
        operation = message.operation
        if operation == "store.writeSnapshot":
            self._on_snapshot(message, line)
        elif operation == "runner.ready":
            self.progress.ready = True
            if not self._ready.done():
                self._ready.set_result(None)
            self._answer(message, "accepted", None)
        elif operation == "runner.exiting":
            self.progress.exiting = _exiting(message.payload)
            self._answer(message, "accepted", None)
        elif operation in ("store.initializeRun", "store.prepareRunResume"):
            self._on_state_wanted(message, line)
        elif operation == "store.reserveEffect":
            self._on_reserve(message, line)
        elif operation == "store.publishUpdate":
            self._on_update(message, line)
        elif operation == "content.write":
            self._transfers.write(_write(message.payload))
            self._answer(message, "accepted", None)
        elif operation == "content.read":
            wish = _read(message.payload)
            self._submit(message, None, lambda transaction: self._transfers.read(wish, transaction))
        elif operation in NOT_YET:
            self._answer(message, "rejected", None, error=f"{operation} is not served by this version")
        else:
            raise ProtocolError(f"unknown operation {operation[:80]!r}")

    def _on_snapshot(self, message: RunnerMessage, line: bytes) -> None:
        snapshot = _snapshot(message.payload)
        run_id, claim, progress = self.launch.run_id, self.claim, self.progress
        finished, started, end = snapshot.finished, snapshot.started, snapshot.end
        if finished is None and started is None and end is None:
            raise ProtocolError("an empty transition")
        receipt = Receipt(self.launch.runner_epoch, message.message_id, identities.sha256(line))
        output = None
        if finished is not None and finished.output is not None and finished.output.content is msgspec.UNSET:
            output = self._transfers.stored(finished.output, None)  # type: ignore[arg-type]
        expected = message.expected_revision
        simple = end is None and (finished is None or finished.effect is None)

        def apply(transaction: Transaction) -> int:
            self._admit(message.message_id)
            steps = transaction.steps
            steps.cursor(run_id, claim)
            if finished is not None and finished.effect is not None:
                run_effects.require_applying(transaction.connection, finished.effect.effect_id)
            stored = output
            if stored is None and finished is not None and finished.output is not None:
                stored = self._transfers.stored(finished.output, transaction)
            if started is not None and progress.cancel_interrupted:
                transitions.cancel_interrupted(transaction.sql(), run_id, transaction.now)
            cursor = steps.apply(run_id, claim, expected, snapshot, stored, receipt if simple else None)
            revision = cursor.revision
            if not simple:
                revision = self._apply_rest(transaction, snapshot, stored, revision)
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

        self.server.committer.submit_with(apply, done)

    def _apply_rest(
        self, transaction: Transaction, snapshot: Snapshot, output: tuple[bytes, bytes] | bytes | None, revision: int
    ) -> int:
        connection, now, finished = transaction.sql(), transaction.now, snapshot.finished
        digest = output[0] if isinstance(output, tuple) else output
        if finished is not None and finished.effect is not None:
            run_effects.settle(connection, self.launch.run_id, finished.effect, digest, finished.error, now)
        if snapshot.end is not None:
            final = None
            if snapshot.end.output is not None:
                given = self._transfers.stored(snapshot.end.output, transaction)
                final = blobs.put_json_bytes(connection, given[1], now) if isinstance(given, tuple) else given
            revision = transitions.end(connection, self.launch.run_id, self.claim, snapshot.end, final, now)
        return revision

    def _admit(self, message_id: str) -> None:
        progress = self.progress
        if progress.refused:
            raise StaleClaimError("refused, since an earlier proposal of this runner was", "missingAuthority")
        if progress.resend_from is not None and progress.resend_from != message_id:
            raise StateUnavailableError("unavailable: an earlier proposal is not stored yet")

    def _committed(self, snapshot: Snapshot) -> None:
        progress = self.progress
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
            self.server.run_ended(self.launch.run_id)
        if snapshot.abandoned:
            progress.abandoned = True

    def _failed(self, message: RunnerMessage, receipt: Receipt, error: BaseException) -> None:
        progress = self.progress
        if isinstance(error, StateUnavailableError):
            if progress.resend_from is None:
                progress.resend_from = message.message_id
            self._answer(message, "rejected", None, error=f"unavailable: {error}")
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
            self.stop("claimLost" if outcome == "claimLost" else "crashed")

        progress.refused = True
        self.server.committer.submit_with(adopt, adopted)

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
                self.progress.resend_from = None
                self._answer(message, "accepted", given[0], result=given[1])
            elif error is not None:
                self._failed(message, receipt or Receipt(self.launch.runner_epoch, message.message_id, b""), error)

        self.server.committer.submit_with(apply, done)

    def _receipt(self, message: RunnerMessage, line: bytes) -> Receipt:
        return Receipt(self.launch.runner_epoch, message.message_id, identities.sha256(line))

    def _on_state_wanted(self, message: RunnerMessage, line: bytes) -> None:
        resume = message.operation == "store.prepareRunResume"
        run_id = self.launch.run_id

        def state(transaction: Transaction) -> dict[str, Any]:
            connection = transaction.sql()
            found = runs.run_state(connection, run_id)
            event, payload = (
                ("run_resume_prepared", {}) if resume else ("run_initialized", {"workflowName": found["workflowName"]})
            )
            revision = transitions.record_engine_event(connection, run_id, self.claim, event, payload, transaction.now)
            return {"revision": revision, **found}

        self._submit(message, self._receipt(message, line), state)

    def _on_reserve(self, message: RunnerMessage, line: bytes) -> None:
        wish = _reserve(message.payload)
        request = canonical_json.decode(self._transfers.bytes_of(wish.request))

        def reserve(transaction: Transaction) -> dict[str, Any]:
            connection = transaction.sql()
            run = runs.read(connection, self.launch.run_id)
            given = run_effects.reserve(connection, run, self.claim, wish, request, transaction.now)
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
                self.launch.run_id,
                self.claim,
                update.attempt_id,
                update.type,
                update.key,
                data,
                transaction.now,
            )
            transaction.changed.add(self.launch.run_id)
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
        if self._channel is None:
            return
        self._channel.send(
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

    # -- time ---------------------------------------------------------------------------------------------------------

    def renew(self, connection: sqlite3.Connection, now: int) -> None:
        """Prolong the claim, inside a transaction; a claim that is not the live one any more is left alone."""
        with contextlib.suppress(StaleClaimError):
            mutation.renew_lease(connection, self.claim, now)

    def expires_at(self) -> int:
        """When the claim ends (ms): 0 when it is another's."""
        row = self.server.database.connection.execute(
            "SELECT expires_at FROM leases WHERE resource_id = ? AND generation = ?",
            (self.claim.resource_id, self.claim.generation),
        ).fetchone()
        return row[0] or 0 if row else 0

    def stopped_by_signal(self) -> bool:
        """Whether the runner's process is stopped (state T): its claim is left to expire."""
        return self.child is not None and processes.is_stopped(self.child.pid)

    def overdue(self, now: int) -> bool:
        """Whether the active node's deadline passed so long ago that its runner will not say so any more."""
        active = self.progress.active
        return (
            active is not None and active.deadline_at is not None and now > active.deadline_at + OVERDUE_SECONDS * 1000
        )

    def give_up_node(self) -> None:
        """Commit the timeout that the runner cannot propose, and end it; a new generation goes on from there."""
        active = self.progress.active
        if active is None or self.outcome is not None:
            return
        run_id, claim = self.launch.run_id, self.claim

        def time_out(transaction: Transaction) -> None:
            steps = transaction.steps
            cursor = steps.cursor(run_id, claim)
            finished = Finished(
                attempt_id=active.attempt_id,
                effect=None,
                error=f"node {active.node_id} ran past its deadline and could not be stopped; its process was ended",
                finished_at=transaction.now,
                node_id=active.node_id,
                outcome="timed_out",
                output=None,
                step=not active.retry_on_timeout,
            )
            snapshot = Snapshot(abandoned=True, end=None, finished=finished, started=None)
            steps.apply(run_id, claim, cursor.revision, snapshot, None, None)
            transaction.changed.add(run_id)

        def done(_: None, error: BaseException | None) -> None:
            if error is None:
                self.progress.active = None
                self.progress.abandoned = True
                self.progress.boundaries += 1
                self.kill("timedOut")

        self.server.committer.submit_with(time_out, done)


@dataclass(frozen=True)
class Cause:
    """Whose fault an exit is: `ours` counts for no run."""

    ours: bool
    clean: bool


def _cause(status: int | None, spawned: bool, progress: Progress) -> Cause:
    return Cause(ours=status is None and spawned, clean=status == 0 and progress.exiting is not None)


def park_after_exit(
    connection: sqlite3.Connection, run: runs.RunRow, progress: Progress, outcome: RunnerOutcome, cause: Cause, now: int
) -> None:
    """What a runner's exit means for a run that is still its own: when it is due again, and whether it is at all."""
    exiting = progress.exiting
    if exiting is not None and exiting.reason == "sourceChanged":
        transitions.park(
            connection, run, now, code="workflowSourceChanged", detail=exiting.detail, event="run.source_changed"
        )
        return
    if cause.ours or progress.abandoned or outcome in ("cancelled", "timedOut", "claimLost"):
        transitions.park(connection, run, now, available_at=now)
        return
    errors = (0 if progress.boundaries else run.consecutive_errors) + 1
    if errors >= CRASHES or (cause.clean and not progress.boundaries):
        last = progress.diagnostics[-1] if progress.diagnostics else outcome
        transitions.park(
            connection,
            run,
            now,
            code="runnerNoProgress",
            detail=f"the runner ended {errors} time(s) without finishing a node; the last reason: {last}",
            errors=errors,
            event="run.worker_no_progress",
        )
        return
    transitions.park(connection, run, now, available_at=now if errors == 1 else now + 1000, errors=errors)
