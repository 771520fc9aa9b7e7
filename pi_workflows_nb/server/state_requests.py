"""What a client asks about the state file as a whole: check it, copy it, let old runs leave it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..state import backup
from ..wire.client_messages import Request, StateBackup, StatePrune
from ..wire.decoding import of_kind
from ..wire.errors import StateFileError
from .commanding import Commands
from .receipts import Receipt

if TYPE_CHECKING:
    from .server import WorkflowServer


class StateRequests:
    """The operations of one client about the file."""

    def __init__(self, server: WorkflowServer, commands: Commands) -> None:
        self._server = server
        self._commands = commands
        self.operations: dict[str, Callable[[Request], Awaitable[Receipt]]] = {
            "state.backup": self._backup,
            "state.prune": self._prune,
            "state.verify": self._verify,
        }

    async def _verify(self, _: Request) -> Receipt:
        return Receipt(await self._server.apart.ask("verify", str(self._server.path)))

    async def _backup(self, request: Request) -> Receipt:
        wanted = of_kind(StateBackup, request.payload)
        made = {} if self._commands.earlier(request) else await self._copy(wanted.destination)
        return await self._commands.commit(request, lambda _: Receipt(made))

    async def _copy(self, path: str) -> dict[str, Any]:
        real = backup.destination(path, self._server.path)
        return await self._server.apart.ask("backup", str(self._server.path), str(real))

    async def _prune(self, request: Request) -> Receipt:
        wanted = of_kind(StatePrune, request.payload)
        if wanted.apply and wanted.backup is None:
            raise StateFileError("a prune that is applied needs a backup: say where, by an absolute path")
        pruning = self._server.pruning
        if not wanted.apply:
            found = await pruning.look(wanted.before)
            return Receipt({"applied": False, **found.to_json()})
        done: dict[str, Any] = {}
        if not self._commands.earlier(request):
            made = await self._copy(wanted.backup or "")
            done = await pruning.by_hand(wanted.before, made)
        return await self._commands.commit(request, lambda _: Receipt(done))
