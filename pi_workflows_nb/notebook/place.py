"""Where a file is served from: found on its socket, or served in this kernel or in a process of its own."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.state.database import Database, open_read_only
from pi_workflows_nb.wire.errors import PiWorkflowsError, ServerStoppedError, StateFileError

if TYPE_CHECKING:
    from pi_workflows_nb.client.connection import SocketConnection

    from .link import Connection


@dataclass(frozen=True)
class Place:
    """A file, and how this kernel would serve it: `placement` is `thread` or `process`."""

    database: Path
    home: Path
    project: Path
    placement: str
    options: dict[str, Any]

    def attach(self, client_id: str) -> SocketConnection | None:
        """A connection to the server that serves the file now, or None where none answers."""
        from pi_workflows_nb.client.connection import SocketConnection
        from pi_workflows_nb.wire.sockets import socket_path

        where = socket_path(self.database, self.home)
        if not where.exists():
            return None
        try:
            return SocketConnection(where, self.database, self.project, client_id=client_id)
        except ServerStoppedError:
            return None

    def ownership(self) -> tuple[int, bool]:
        """The file's newest epoch, 0 where it cannot be read, and whether its server has given the file back."""
        try:
            with closing(open_read_only(self.database)) as connection:
                epoch, server = connection.execute("SELECT epoch, host_id FROM workflow_host_state").fetchone()
        except (PiWorkflowsError, sqlite3.Error):
            return 0, False
        return epoch, server is None

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other kernel is about to serve the file; others see this one as long as the block lasts."""
        folder = self.database.with_name(self.database.name + ".d")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(folder / "candidate", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield True  # the server itself says what is wrong with the folder
            return
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def serve(self, client_id: str) -> Connection:
        """Become the file's server. `ServerRunningError` while another live process is, `StateFileError`."""
        return self._in_thread(client_id) if self.placement == "thread" else self._in_process(client_id)

    def _in_thread(self, client_id: str) -> Connection:
        from pi_workflows_nb.server.local_connection import LocalConnection
        from pi_workflows_nb.server.options import Options
        from pi_workflows_nb.server.thread import ServerThread

        thread = ServerThread(self.database, self.home, Options.of_json(self.options, in_kernel=True))
        thread.start()
        return LocalConnection(thread, self.project, client_id)

    def _in_process(self, client_id: str) -> Connection:
        from pi_workflows_nb.client.connection import SocketConnection
        from pi_workflows_nb.client.launching import start_server

        Database.look_at(self.database)
        try:
            where, process = start_server(self.database, self.home, self.options)
        except OSError as error:
            raise StateFileError(
                f"{self.database} cannot be served ({error}): make room and its folder writable, or choose another path"
            ) from error
        return SocketConnection(where, self.database, self.project, process=process, client_id=client_id)
