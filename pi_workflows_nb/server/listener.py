"""The Unix socket of a server: made in a private folder, kept there, and every client that connects.

Open from the moment the file is owned until it is given back. Each client is a connection of its own (`Client`), so
that nothing one of them does reaches another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..wire.client_messages import Farewell
from ..wire.errors import StateFileError
from . import processes
from .client import Client

if TYPE_CHECKING:
    from .server import WorkflowServer

KEEP_SECONDS: Final = 1.0
FULL_SECONDS: Final = 0.1
BACKLOG: Final = 128

log = logging.getLogger(__name__)


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise StateFileError(f"{folder} must belong to this user and be writable by nobody else: it holds the socket")


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


class Listener:
    """Accepts clients of one server."""

    def __init__(self, server: WorkflowServer, path: Path) -> None:
        self._server = server
        self._path = path
        self._socket: socket.socket | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._made = (0, 0)
        self.clients: set[Client] = set()

    async def start(self) -> None:
        """Listen. A socket that a dead server left is replaced: this server owns the file."""
        self._listen()
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Listen again when the socket was deleted, as by a program that sweeps old files."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if not self._path.exists() and self._server.database.in_place():
                try:
                    self._listen()
                except StateFileError:
                    continue

    def _listen(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _private_folder(self._path.parent)
            self._path.unlink(missing_ok=True)
            mask = os.umask(0o177)
            try:
                listening.bind(str(self._path))
            finally:
                os.umask(mask)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise StateFileError(
                f"the socket {self._path} cannot be made ({error}): set PI_WORKFLOWS_HOME to a folder that you may"
                " write to"
            ) from error
        except StateFileError:
            listening.close()
            raise
        listening.setblocking(False)
        # A forked copy of this process would answer for it, or hold a client that waits for the end of it.
        processes.close_after_fork(listening)
        self._made = _identity(self._path)
        swept, self._socket = self._socket, listening
        if swept is not None and self._accepting is not None:
            self._accepting.cancel()
            swept.close()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no client can connect just now: %s", error)
                await asyncio.sleep(FULL_SECONDS)
                continue
            processes.close_after_fork(connected)
            await loop.connect_accepted_socket(lambda: Client(self._server, self.clients).channel, connected)

    def close_door(self) -> None:
        """Let nobody in any more; a second call does nothing."""
        for task in (self._keeping, self._accepting):
            if task is not None:
                task.cancel()
        listening, self._socket = self._socket, None
        if listening is None:
            return
        listening.close()
        # The server of another file that took the place of this one's listens under the same name.
        if _identity(self._path) == self._made:
            self._path.unlink(missing_ok=True)

    def stop(self, farewell: Farewell) -> None:
        """Take leave of every client."""
        self.close_door()
        for client in list(self.clients):
            client.leave(farewell)
