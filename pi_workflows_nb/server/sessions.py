"""The sessions of a server: who speaks for each, and the answers that are looked at.

One coordinator speaks for a session, the one that came last; whoever did before is fenced by the epoch. Coordinators
are known to one server alone: its epoch is part of theirs, so that each new server hears of them anew.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ..state import blobs, interactive_requests, transitions, workflow_messages
from ..state.mutation import Claim
from ..wire.errors import PiWorkflowsError, StaleClaimError, StateUnavailableError
from . import answers
from .committer import Transaction

if TYPE_CHECKING:
    from .server import WorkflowServer

T = TypeVar("T")
LOOK_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.5
SILENT_SECONDS: Final = 15.0
_ASKED: Final = "SELECT run_id FROM interactive_requests WHERE target_session_id = ? AND status = 'pending'"
_SESSION: Final = """
    SELECT b.origin_session_id,
           (SELECT t.workflow_turn_id FROM workflow_turns t WHERE t.run_id = b.run_id AND t.state = 'started' LIMIT 1)
    FROM run_bindings b WHERE b.run_id = ?
"""

log = logging.getLogger(__name__)


class Sessions:
    """What a server knows of sessions beside the file."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server
        self._coordinators: dict[str, str] = {}
        self._heard: dict[str, float] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._looking: dict[str, asyncio.Task[None]] = {}

    # -- coordinators -------------------------------------------------------------------------------------------------

    def attach(self, session_id: str) -> str:
        """Let whoever asks speak for a session from now on, and give the epoch by which it does."""
        self._count += 1
        self._coordinators[session_id] = epoch = f"{self._server.ownership.epoch}:{self._count}"
        self._heard[session_id] = self._server.clock.monotonic()
        self.changed()
        asked = self._server.database.connection.execute(_ASKED, (session_id,)).fetchall()
        self._server.subscriptions.changed({run_id for (run_id,) in asked})
        return epoch

    def has_agent(self, run_id: str) -> bool:
        """Whether somebody who was heard of lately speaks for the session of a run, or has a turn at it."""
        connection = self._server.database.connection
        session_id, turn = connection.execute(_SESSION, (run_id,)).fetchone() or ("", None)
        heard = self._heard.get(session_id)
        return turn is not None or (heard is not None and self._server.clock.monotonic() - heard < SILENT_SECONDS)

    def require(self, session_id: str, epoch: object) -> None:
        """`StaleClaimError` unless the epoch is that of the session's coordinator."""
        if self._coordinators.get(session_id) != epoch:
            raise StaleClaimError("somebody else speaks for this session now", "generationChanged")

    def changed(self) -> None:
        """Something that a session waits for may have come."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, session_id: str, epoch: object, seconds: float) -> bool:
        """Whether the session has something to be shown, at the latest after so many seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._server.stopping:
            self.require(session_id, epoch)
            self._heard[session_id] = self._server.clock.monotonic()
            changed = self._changed
            if workflow_messages.next_of(self._server.database.connection, session_id) is not None:
                return True
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, until - loop.time()))
            except TimeoutError:
                return False
            await asyncio.sleep(LOOK_SECONDS)  # of a stream of changes some are looked at
        return False

    # -- answers that are looked at -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Look anew at the answers whose server was gone before it had looked."""
        for submission in interactive_requests.validating(self._server.database.connection):
            self.look_at(submission.submission_id, None)

    def look_at(self, submission_id: str, claim: Claim | None) -> asyncio.Task[None]:
        """Have the node's own code look at an answer, in a child; the task is done when its outcome is on disk."""
        task = self._looking.get(submission_id)
        if task is None:
            task = self._looking[submission_id] = self._server.spawn_task(self._look_at(submission_id, claim))
            task.add_done_callback(lambda _: self._looking.pop(submission_id, None))
        return task

    async def _look_at(self, submission_id: str, claim: Claim | None) -> None:
        server = self._server
        connection = server.database.connection
        submission = interactive_requests.submission(connection, submission_id)
        request = interactive_requests.read(connection, submission.request_id)

        def hold(transaction: Transaction) -> Claim:
            transaction.changed.add(request.run_id)
            return transitions.hold_for(transaction.sql(), request, server.ownership.server_id, transaction.now)

        output, refused = b"", None
        try:
            held = claim or await self._until_stored(hold)
            value = blobs.read_json_bytes(connection, submission.payload)
            output = await answers.validated(server, request.run_id, request.node_id, value)
        except PiWorkflowsError as error:
            held, refused = claim, str(error)
        except sqlite3.Error as error:
            held, refused = claim, f"it could not be read: {error}"

        def settle(transaction: Transaction) -> None:
            cursor, now = transaction.sql(), transaction.now
            transaction.changed.add(request.run_id)
            if refused is not None:
                transitions.reject(cursor, submission_id, refused, held, now)
                return
            assert held is not None
            transitions.accept(cursor, submission_id, output, held, now)

        def give_up(transaction: Transaction) -> None:
            transaction.changed.add(request.run_id)
            said = "the run was taken over while the answer was looked at; try again"
            transitions.reject(transaction.sql(), submission_id, said, None, transaction.now)

        try:
            await self._until_stored(settle)
        except StaleClaimError:
            await self._until_stored(give_up)
        server.wake(request.run_id)

    async def _until_stored(self, change: Callable[[Transaction], T]) -> T:
        while True:
            try:
                return await self._server.committer.submit(change)
            except StateUnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
