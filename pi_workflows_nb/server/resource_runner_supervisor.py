"""The process of one pass over a managed resource: what it is started with, heard, and what its end means.

Its life is that of any child (`child_runner_supervisor`). It asks one thing after the other. A pass that did not end by
itself failed, unless the server cut it short.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ..resource_managers import passes
from ..resource_managers.passes import Pass
from ..state import blobs, resource_queue
from ..state.runners import RunnerOutcome
from ..wire import canonical_json, identities
from ..wire.decoding import decoded
from ..wire.errors import (
    ClaimTargetError,
    ManagedResourceNotFoundError,
    NotFoundError,
    PiWorkflowsError,
    ProtocolError,
    StaleClaimError,
    StateUnavailableError,
)
from ..wire.resource_messages import (
    RECONCILE_SCHEMA,
    RESOURCE_KINDS,
    RESOURCE_LAUNCH_SCHEMA,
    RESOURCE_MESSAGE_SCHEMA,
    ReconcileCommand,
    ResourceEnvelope,
    ResourceMessage,
    ResourceState,
)
from ..wire.runner_messages import (
    PART_BYTES,
    PROTOCOL_VERSION,
    RESPONSE_SCHEMA,
    ContentRead,
    ContentWrite,
    RunnerResponse,
    encode,
)
from . import contents
from .child_runner_supervisor import ChildEnd, ChildRunnerSupervisor, ChildSpec
from .committer import Transaction
from .contents import Transfers
from .launch import Diagnostics
from .manager_sources import Facts, ManagerSource
from .resource_operations import ResourceOperations

if TYPE_CHECKING:
    from .server import WorkflowServer

log = logging.getLogger(__name__)

ERROR_CHARACTERS: Final = 8000
RETRY_SECONDS: Final = 0.5
_message: Final = msgspec.json.Decoder(ResourceMessage)
_read: Final = msgspec.json.Decoder(ContentRead)
_write: Final = msgspec.json.Decoder(ContentWrite)


class ResourceRunnerSupervisor:
    """Starts, hears and ends the process of one pass.

    `over` says that the pass has ended in the file, `renewed_at` when its claim was taken or renewed last, on the clock
    that never jumps.
    """

    def __init__(
        self,
        server: WorkflowServer,
        one: Pass,
        source: ManagerSource,
        facts: Facts,
        folder: str,
        environment: Mapping[str, str] | None,
    ) -> None:
        self.server = server
        self.one = one
        self.source = source
        self.folder = folder
        self.environment = environment
        self.over = False
        self.renewed_at = server.clock.monotonic()
        self.transfers = Transfers(server.transfers, one.reconcile_id)
        self._facts = facts
        self._frozen = canonical_json.encode(source.frozen)
        self._frozen_digest = identities.sha256_hex(self._frozen)
        self._until: float | None = None
        self._stopping: RunnerOutcome | None = None
        self._ready = False
        self._answers: dict[str, tuple[bytes, bytes | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations = ResourceOperations(self)
        self.log_path = server.logs / f"{one.reconcile_id}.log"
        claim = one.claim
        envelope = ResourceEnvelope(
            claim_generation=claim.generation,
            key=claim.key,
            project_path=folder,
            protocol_version=PROTOCOL_VERSION,
            resource_manager=claim.resource_manager,
            runner_epoch=one.reconcile_id,
            schema=RESOURCE_LAUNCH_SCHEMA,
            uid=one.resource.uid,
        )
        spec = ChildSpec(
            label=f"pass over {claim.key!r} of {claim.resource_manager!r}",
            mode="reconcile",
            epoch=one.reconcile_id,
            envelope=encode(envelope),
            environment=environment,
            folder=folder,
            log=self.log_path,
        )
        self._life = ChildRunnerSupervisor(server, spec, self._on_frame, Diagnostics())

    # -- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From fork to exit. Never raises: a pass that did not end is ended here."""
        end = await self._life.live(self._command)
        for task in list(self._tasks):
            await asyncio.wait([task])
        self.transfers.close()
        while not self.over:
            try:
                await self.server.committer.submit(lambda transaction: self._end_without_word(transaction, end))
            except StateUnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except PiWorkflowsError as error:
                log.warning("a pass could not be ended: %s", error)
            self.over = True
        self._keep_log()

    def _end_without_word(self, transaction: Transaction, end: ChildEnd) -> None:
        connection, now = transaction.sql(), transaction.now
        if self._stopping in ("cancelled", "claimLost") or (self._stopping is None and end.status is None):
            passes.hand_back(connection, self.one, now)
        else:
            passes.fail(connection, self.one, self._what_happened(end), now)

    def _what_happened(self, end: ChildEnd) -> str:
        if self._stopping == "timedOut":
            return f"the pass took longer than {self._facts.timeout_ms / 1000:g} s and was stopped"
        how = f"by {end.signal_name}" if end.signal_name else f"with exit code {end.exit_code}"
        return f"the process of the pass ended {how} without a result\n{end.diagnostic}".strip()

    def _keep_log(self) -> None:
        """What the newest pass over a resource printed is kept under the resource's uid."""
        kept = self.log_path.with_name(f"resource-{self.one.resource.uid}.log")
        try:
            if self.log_path.stat().st_size:
                self.log_path.replace(kept)
            else:
                self.log_path.unlink()
                kept.unlink(missing_ok=True)
        except OSError:
            return

    def stop(self, outcome: RunnerOutcome) -> None:
        """End the process: SIGTERM, 2 s, SIGKILL. Nothing more is heard of it. The first outcome given counts."""
        self._stopping = self._stopping or outcome
        self._life.stop(outcome)

    def kill(self, outcome: RunnerOutcome) -> None:
        """End the process at once."""
        self._stopping = self._stopping or outcome
        self._life.kill(outcome)

    def check_deadline(self) -> None:
        """Stop a pass that has taken too long, or a process that has said how its pass ends and does not leave."""
        if self._until is None or self._active_time() <= self._until:
            return
        if self.over:
            self.kill("timedOut")
        else:
            self.stop("timedOut")

    def renew(self, transaction: Transaction) -> int | None:
        """Prolong the claim; gives its new expiry, None when it is lost."""
        claim = self.one.claim
        return resource_queue.renew(transaction.sql(), claim.project_id, claim, passes.LEASE_MS, transaction.now)

    def _active_time(self) -> float:
        return self.server.lateness.active(self.server.clock.monotonic())

    def _command(self) -> None:
        connection, resource = self.server.database.connection, self.one.resource
        row = connection.execute(
            "SELECT spec_hash, status_hash FROM controller_resources WHERE uid = ?", (resource.uid,)
        ).fetchone()
        if row is None:
            self.kill("claimLost")
            return
        spec, status = (blobs.read_json_bytes(connection, digest) for digest in row)
        state = ResourceState(
            deletion_timestamp=resource.deletion_timestamp,
            finalizers=list(resource.finalizers),
            generation=resource.generation,
            resource_version=self.one.version,
            spec=contents.offered(spec),
            status=contents.offered(status),
        )
        source = contents.offered(self._frozen)
        command = ReconcileCommand(
            filename=self.source.filename, resource=state, schema=RECONCILE_SCHEMA, source=source
        )
        self._until = self._active_time() + self._facts.timeout_ms / 1000
        self._life.send(encode(command))

    # -- what it says -------------------------------------------------------------------------------------------------

    def _on_frame(self, line: bytes) -> None:
        message = self._read_message(line)
        operation = message.operation
        if operation == "runner.ready":
            if self._ready:
                raise ProtocolError("ready for a second time")
            self._ready = True
            self._life.said_ready()
            self._answer(message, "accepted")
            return
        if not self._ready:
            raise ProtocolError(f"{operation} before runner.ready")
        digest = identities.sha256(line)
        known = self._answers.get(message.message_id)
        if known is not None:
            if known[0] != digest:
                raise ProtocolError(f"the id {message.message_id} stands for another message")
            if known[1] is not None:
                self._life.send(known[1])
            return
        if self._stopping is not None or (self.over and operation != "runner.exiting"):
            self._answer(message, "claimLost", error="the pass is over")
            return
        if operation == "runner.exiting":
            self._life.said_exiting()
            self._answer(message, "accepted")
        elif operation == "content.read":
            self._give_part(message)
        elif operation == "content.write":
            self._take_part(message)
        else:
            self._answers[message.message_id] = digest, None
            task = asyncio.get_running_loop().create_task(self._work(message, digest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, message: ResourceMessage, digest: bytes) -> None:
        try:
            result = await self._operations.answer(message)
        except StateUnavailableError as error:
            del self._answers[message.message_id]
            self._answer(message, "rejected", error=f"unavailable: {error}")
        except (StaleClaimError, ClaimTargetError, ManagedResourceNotFoundError) as error:
            self._answer(message, "claimLost", error=str(error)[:ERROR_CHARACTERS])
            self.kill("claimLost")
        except (ProtocolError, msgspec.MsgspecError) as error:
            self._life.diagnostics.add(f"protocol: {error}")
            self.kill("crashed")
        except PiWorkflowsError as error:
            said = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
            self._answers[message.message_id] = digest, self._answer(message, "rejected", error=said)
        except Exception as error:
            log.exception("%s of a pass failed", message.operation)
            self._life.diagnostics.add(f"{message.operation} failed inside the server: {error!r}")
            self.kill("crashed")
        else:
            self._answers[message.message_id] = digest, self._answer(message, "accepted", result)

    def _read_message(self, line: bytes) -> ResourceMessage:
        message, one = decoded(_message, line), self.one
        if (
            message.schema != RESOURCE_MESSAGE_SCHEMA
            or message.launch_schema != RESOURCE_LAUNCH_SCHEMA
            or message.uid != one.resource.uid
            or message.resource_manager != one.claim.resource_manager
            or message.key != one.claim.key
            or message.runner_epoch != one.reconcile_id
            or message.claim_generation != one.claim.generation
        ):
            raise ProtocolError("a message of another resource, claim or runner epoch")
        kind = RESOURCE_KINDS.get(message.operation)
        if kind is None:
            raise ProtocolError(f"unknown operation {message.operation[:80]!r}")
        if message.kind != kind:
            raise ProtocolError(f"{message.operation} cannot be sent as {message.kind}")
        return message

    def _give_part(self, message: ResourceMessage) -> None:
        wish = decoded(_read, message.payload)
        try:
            if wish.sha256 == self._frozen_digest:
                part = contents.part_of(self._frozen[wish.offset : wish.offset + PART_BYTES])
            else:
                part = contents.read(wish, self.server.database.connection)
        except NotFoundError as error:
            self._answer(message, "rejected", error=f"{type(error).__name__}: {error}")
        except sqlite3.Error as error:
            self._answer(message, "rejected", error=f"unavailable: {error}")
        else:
            self._answer(message, "accepted", part)

    def _take_part(self, message: ResourceMessage) -> None:
        try:
            self.transfers.write(decoded(_write, message.payload))
        except StateUnavailableError as error:
            self._answer(message, "rejected", error=f"unavailable: {error}")
        else:
            self._answer(message, "accepted")

    def _answer(
        self, message: ResourceMessage, outcome: str, result: bytes | None = None, error: str | None = None
    ) -> bytes:
        frame = encode(
            RunnerResponse(
                error=error,
                message_id=message.message_id,
                outcome=outcome,  # type: ignore[arg-type]
                result=None if result is None else contents.offered(result),
                revision=self.one.version,
                schema=RESPONSE_SCHEMA,
            )
        )
        self._life.send(frame)
        return frame
