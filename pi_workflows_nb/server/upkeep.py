"""What a server does by the clock: renew claims, give up nodes of silent runners, cap logs, checkpoint the file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from ..state import server_row
from ..wire.errors import StateUnavailableError
from . import logs
from .clock import LATE_SECONDS, TICK_SECONDS
from .committer import Transaction

if TYPE_CHECKING:
    from .server import WorkflowServer

log = logging.getLogger(__name__)

CHECKPOINT_PAGES: Final = 8000


class Upkeep:
    """The regular work of one server, on its loop."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server
        self._renewed_at = 0.0
        self._checkpointed = 0
        self._checkpoint_every = 400

    async def run(self) -> None:
        """Until the server stops."""
        expected = self._server.clock.monotonic() + TICK_SECONDS
        while not self._server.stopping:
            await asyncio.sleep(max(0.0, expected - self._server.clock.monotonic()))
            now = self._server.clock.monotonic()
            self._server.lateness.note(max(0.0, now - expected), now)
            expected = now + TICK_SECONDS
            try:
                self._renew()
                for supervisor in self._server.supervisors.values():
                    if supervisor is not None:
                        logs.cap(supervisor.log_path)
                for one in self._server.reconciling.passes.values():
                    logs.cap(one.log_path)
                if self._server.lateness.now < LATE_SECONDS:
                    # After a pause of this thread the runners' messages are read first, in the next rounds.
                    self._check_deadlines()
                self._checkpoint_when_idle()
            except sqlite3.Error:
                log.exception("the file could not be read; it is tried again")

    def _renew(self) -> None:
        now = self._server.clock.now()
        due = []
        for supervisor in self._server.supervisors.values():
            if supervisor is None or supervisor.progress.ended:
                continue
            left = supervisor.expires_at() - now
            stopped = supervisor.stopped_by_signal()
            if left <= 0:
                supervisor.expired()
            elif left < supervisor.claim.lease_ms * 2 / 3 and not stopped:
                due.append(supervisor)

        def renew(transaction: Transaction) -> None:
            connection = transaction.sql()
            server_row.renew(connection, self._server.ownership, transaction.now)
            for supervisor in due:
                supervisor.renew(connection, transaction.now)

        clock = self._server.clock
        if due or clock.jump() or clock.monotonic() - self._renewed_at > server_row.SERVER_LEASE_MS / 3000:
            self._renewed_at = clock.monotonic()
            self._server.committer.submit_with(renew, lambda _, __: None)

    def _check_deadlines(self) -> None:
        for supervisor in list(self._server.supervisors.values()):
            if supervisor is None:
                continue
            if supervisor.overdue():
                supervisor.give_up_node()
            elif supervisor.loads_for_too_long():
                supervisor.give_up_loading()

    def _checkpoint_when_idle(self) -> None:
        commits = self._server.committer.counters.commits
        new = commits - self._checkpointed
        busy = self._server.supervisors or self._server.reconciling.passes
        if new == 0 or (busy and new < self._checkpoint_every):
            return
        try:
            pages, _ = self._server.database.checkpoint()
        except StateUnavailableError:
            return
        self._checkpointed = commits
        if pages > 0:
            self._checkpoint_every = max(50, min(20_000, CHECKPOINT_PAGES * new // pages))
