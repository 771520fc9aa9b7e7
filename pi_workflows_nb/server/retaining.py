"""What a server lets go by itself: trees of runs that ended long ago, while nothing else is to be done."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from ..wire.errors import PiWorkflowsError

if TYPE_CHECKING:
    from .server import WorkflowServer

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 60.0
EVERY_SECONDS: Final = 3600.0


class Retaining:
    """Looks once a minute after the start and then every hour, and stops at once when there is work."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server

    async def run(self) -> None:
        """Until the server stops; nothing ever leaves when it is to keep everything."""
        age = self._server.options.retention_ms
        if age is None:
            return
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait)
            wait = EVERY_SECONDS
            if not self._idle():
                continue
            try:
                await self._let_go(max(0, self._server.clock.now() - age))
            except (OSError, PiWorkflowsError, sqlite3.Error) as error:
                log.warning("old runs could not leave the file; it is tried again: %s", error)

    def _idle(self) -> bool:
        server = self._server
        return not (server.stopping or server.supervisors or server.reconciling.passes)

    async def _let_go(self, before: int) -> None:
        pruning = self._server.pruning
        pruned = await pruning.prune(before, self._idle)
        if pruned.trees or pruned.blobs:
            log.info("%d runs that ended long ago have left the file, with %d blobs", pruned.runs, pruned.blobs)
            if self._idle():
                pruning.shrink(by_hand=False)
