"""What a runner says, checked and applied strictly in order; after the first refusal everything else is refused.

A message that does not keep to the protocol raises here, and whoever reads the stream stops that runner. One that
does, and cannot be followed, is answered `rejected`: after a refusal that leaves the runner with a wrong idea of its
run it is stopped as well, and after one that only declines a wish it goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ..state import runners
from ..state.runners import Receipt, RunnerOutcome
from ..wire import identities
from ..wire.decoding import decoded
from ..wire.errors import (
    EffectRequestConflictError,
    NotFoundError,
    PiWorkflowsError,
    ProtocolError,
    StaleClaimError,
    StateUnavailableError,
)
from ..wire.runner_messages import (
    KINDS,
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    RESPONSE_SCHEMA,
    ContentRead,
    ContentWrite,
    Exiting,
    Nothing,
    RunnerMessage,
    RunnerResponse,
    encode,
)
from . import contents
from .committer import Transaction
from .contents import Transfers
from .launch import Launch, Progress
from .processes import ProcessRegistry
from .runner_operations import Answer, DeclinedError, Operations, payload

if TYPE_CHECKING:
    from .server import WorkflowServer

MOST_WAITING: Final = 32
"""Messages of one runner without an answer; then no more is heard of it until half of them have theirs."""

ERROR_CHARACTERS: Final = 2000
_message = msgspec.json.Decoder(RunnerMessage)
_read = msgspec.json.Decoder(ContentRead)
_write = msgspec.json.Decoder(ContentWrite)
_exiting = msgspec.json.Decoder(Exiting)
_nothing = msgspec.json.Decoder(Nothing)


class NotStoredYetError(PiWorkflowsError):
    """A proposal that came before an earlier one of the same runner could be stored."""


@dataclass(frozen=True)
class Voice:
    """How the server speaks to one runner and acts on it: `send` a frame, `hold` or go on reading, `end` its process.

    `end` takes the outcome, and whether to kill at once.
    """

    send: Callable[[bytes], None]
    hold: Callable[[bool], None]
    end: Callable[[RunnerOutcome, bool], None]
    ready: Callable[[], None]
    running: Callable[[Transaction], None]


class Proposals:
    """Hears one runner."""

    def __init__(
        self,
        server: WorkflowServer,
        launch: Launch,
        progress: Progress,
        transfers: Transfers,
        registry: ProcessRegistry,
        voice: Voice,
    ) -> None:
        self._server = server
        self._launch = launch
        self._claim = launch.claim
        self._progress = progress
        self._transfers = transfers
        self._voice = voice
        self._operations = Operations(server, launch, progress, transfers, registry, voice.running)
        self._waiting = 0
        self._held = False

    def on_frame(self, line: bytes) -> None:
        """Take one frame. Whatever is wrong with it raises, and says so."""
        message = read_message(line, self._launch)
        operation, progress = message.operation, self._progress
        if operation == "runner.ready":
            payload(_nothing, message)
            if progress.ready:
                raise ProtocolError("ready for a second time")
            progress.ready = True
            self._voice.ready()
            self._answer(message, Answer())
            return
        if not progress.ready or progress.exiting is not None:
            raise ProtocolError(f"{operation} before runner.ready or after runner.exiting")
        if operation == "store.writeSnapshot":
            self._submit(message, line, *self._operations.snapshot(message, line), hot=True)
        elif operation == "runner.exiting":
            progress.exiting = payload(_exiting, message)
            self._answer(message, Answer())
        elif operation == "content.write":
            self._take_part(message)
        elif operation == "content.read":
            self._give_part(message)
        else:
            fenced = not operation.startswith("process.")
            self._submit(message, line, *self._operations.of(message), fenced=fenced)

    def _take_part(self, message: RunnerMessage) -> None:
        try:
            self._transfers.write(payload(_write, message))
        except StateUnavailableError as error:
            self._answer(message, Answer("rejected", error=f"unavailable: {error}"))
        else:
            self._answer(message, Answer())

    def _give_part(self, message: RunnerMessage) -> None:
        wish = payload(_read, message)
        try:
            part = contents.read(wish, self._server.database.connection)
        except NotFoundError as error:
            self._failed(message, error)
        except sqlite3.Error as error:
            self._answer(message, Answer("rejected", error=f"unavailable: {error}"))
        else:
            self._answer(message, Answer(result=part))

    # -- order --------------------------------------------------------------------------------------------------------

    def _submit(
        self,
        message: RunnerMessage,
        line: bytes | None,
        operation: Callable[[Transaction], Answer],
        then: Callable[[], None] | None,
        *,
        hot: bool = False,
        fenced: bool = True,
    ) -> None:
        """Have an operation done in its turn, and answered.

        With its `line` its answer is kept: a `hot` one keeps it itself, and looks for an earlier one only when it does
        not fit. What is not `fenced` is done whatever became of the claim and of earlier proposals.
        """
        fingerprint = None if line is None else identities.sha256(line)

        def apply(transaction: Transaction) -> Answer:
            if not hot and fingerprint is not None:
                known = self._known(transaction, message, fingerprint)
                if known is not None:
                    return known
            if fenced:
                self._admit(message.message_id)
            try:
                answer = operation(transaction)
            except (DeclinedError, EffectRequestConflictError) as error:
                answer = Answer("rejected", error=f"{_word(error)}{error}"[:ERROR_CHARACTERS])
            except StateUnavailableError:
                raise
            except PiWorkflowsError:
                known = self._known(transaction, message, fingerprint) if hot and fingerprint is not None else None
                if known is not None:
                    return known
                self._progress.refused_by = message.message_id
                raise
            if fingerprint is not None and not answer.kept:
                self._keep(transaction, message, fingerprint, answer)
            return answer

        def done(answer: Answer | None, error: BaseException | None) -> None:
            self._settle_waiting(-1)
            if answer is None:
                assert error is not None
                self._failed(message, error)
                return
            self._progress.resend_from = None
            if then is not None and answer.outcome == "accepted":
                then()
            self._answer(message, answer)

        self._settle_waiting(1)
        self._server.committer.submit_with(apply, done)

    def _settle_waiting(self, change: int) -> None:
        self._waiting += change
        if self._waiting >= MOST_WAITING if not self._held else self._waiting <= MOST_WAITING // 2:
            self._held = not self._held
            self._voice.hold(self._held)

    def _admit(self, message_id: str) -> None:
        progress = self._progress
        if progress.refused_by == message_id:
            progress.refused_by = None  # its transaction was rolled back for another's sake, and is done again
        if progress.refused_by is not None:
            raise StaleClaimError("refused, since an earlier proposal of this runner was", "missingAuthority")
        if progress.resend_from is not None and progress.resend_from != message_id:
            raise NotStoredYetError("an earlier proposal is not stored yet")

    def _known(self, transaction: Transaction, message: RunnerMessage, fingerprint: bytes) -> Answer | None:
        """The answer that this very message got before; another one under its id is refused."""
        connection = transaction.sql()
        stored = runners.receipt(connection, self._launch.runner_epoch, message.message_id)
        if stored is None:
            return None
        if stored.fingerprint != fingerprint:
            raise ProtocolError(f"the id {message.message_id} stands for another message")
        outcome = "adopted" if stored.outcome == "accepted" else stored.outcome
        result = None if stored.result is None else runners.kept_result(connection, stored.result)
        return Answer(outcome, stored.revision, result, stored.error, kept=True)  # type: ignore[arg-type]

    def _keep(self, transaction: Transaction, message: RunnerMessage, fingerprint: bytes, answer: Answer) -> None:
        connection, now = transaction.sql(), transaction.now
        digest = None if answer.result is None else runners.keep_result(connection, answer.result, now)
        receipt = Receipt(fingerprint, answer.outcome, answer.revision, digest, answer.error)
        runners.record_receipt(connection, self._launch.runner_epoch, message.message_id, receipt, now)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _failed(self, message: RunnerMessage, error: BaseException) -> None:
        progress = self._progress
        if isinstance(error, StateUnavailableError | NotStoredYetError):
            if progress.resend_from is None:
                progress.resend_from = message.message_id
            self._answer(message, Answer("rejected", error=f"unavailable: {error}"))
            return
        progress.refused_by = progress.refused_by or message.message_id
        lost = isinstance(error, StaleClaimError)
        said = str(error)[:ERROR_CHARACTERS]
        progress.diagnostics.add(f"{message.operation}: {said}")
        self._answer(message, Answer("claimLost" if lost else "rejected", self._present_revision(), error=said))
        self._voice.end("claimLost" if lost else "crashed", False)

    def _present_revision(self) -> int | None:
        try:
            row = self._server.database.connection.execute(
                "SELECT revision FROM resources WHERE resource_id = ?", (self._claim.resource_id,)
            ).fetchone()
        except sqlite3.Error:
            return None
        return None if row is None else row[0]

    def _answer(self, message: RunnerMessage, answer: Answer) -> None:
        self._voice.send(
            encode(
                RunnerResponse(
                    error=answer.error,
                    message_id=message.message_id,
                    outcome=answer.outcome,
                    result=None if answer.result is None else contents.offered(answer.result),
                    revision=answer.revision,
                    schema=RESPONSE_SCHEMA,
                )
            )
        )


def read_message(line: bytes, launch: Launch) -> RunnerMessage:
    """Decode a frame of the runner of this launch; `ProtocolError` when it is none. Its payload stays raw."""
    message = decoded(_message, line)
    if (
        message.schema != MESSAGE_SCHEMA
        or message.launch_schema != LAUNCH_SCHEMA
        or message.run_id != launch.run_id
        or message.runner_epoch != launch.runner_epoch
        or message.generation != launch.claim.generation
    ):
        raise ProtocolError("a message of another run, generation or runner epoch")
    kinds = KINDS.get(message.operation)
    if kinds is None:
        raise ProtocolError(f"unknown operation {message.operation[:80]!r}")
    if message.kind not in kinds:
        raise ProtocolError(f"{message.operation} cannot be sent as {message.kind}")
    return message


def _word(error: PiWorkflowsError) -> str:
    return "conflict: " if isinstance(error, EffectRequestConflictError) else ""
