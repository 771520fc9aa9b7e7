"""`client.v1` over a Unix socket: hello, requests, and subscriptions to one run's live view.

A bad frame closes that connection alone. A slow client is coalesced: while its socket is full, only the newest live
view of each run is kept for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any, Final

import msgspec

from ..wire import canonical_json, identities
from ..wire.client_messages import CLIENT_SCHEMA, ClientFrame, ClientOutcome, Event, Hello, Request, Response
from ..wire.errors import PiWorkflowsError, ProtocolError, StateFileError, StateUnavailableError
from ..wire.runner_messages import ContentWrite
from .channel import FrameChannel
from .contents import Transfers
from .requests import Requests
from .server import WorkflowServer

KEEP_SECONDS: Final = 1.0

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(ClientFrame).decode


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
        self._clients: set[Client] = set()
        self._listening: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._made = (0, 0)

    async def start(self) -> None:
        """Listen. A socket that a dead server left is replaced: this server owns the file."""
        await self._listen()
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Listen again when the socket was deleted, as by a program that sweeps old files."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if not self._path.exists() and self._server.database.in_place():
                try:
                    await self._listen()
                except StateFileError:
                    continue

    async def _listen(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _private_folder(self._path.parent)
            self._path.unlink(missing_ok=True)
            mask = os.umask(0o177)
            try:
                listening.bind(str(self._path))
            finally:
                os.umask(mask)
        except OSError as error:
            listening.close()
            raise StateFileError(
                f"the socket {self._path} cannot be made ({error}): set PI_WORKFLOWS_HOME to a folder that you may"
                " write to"
            ) from error
        except StateFileError:
            listening.close()
            raise
        if self._listening is not None:
            self._listening.close()
        self._made = _identity(self._path)
        self._listening = await asyncio.get_running_loop().create_unix_server(
            lambda: Client(self._server, self._clients).channel, sock=listening
        )

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._keeping is not None:
            self._keeping.cancel()
        # The server of another file that took the place of this one's listens under the same name.
        mine = _identity(self._path) == self._made
        if self._listening is not None:
            self._listening.close()
        for client in list(self._clients):
            client.channel.close()
        if mine:
            self._path.unlink(missing_ok=True)

    @property
    def kernels(self) -> int:
        """How many clients keep a server alive that a kernel has started."""
        return len(self._clients)


class Client:
    """One connection."""

    def __init__(self, server: WorkflowServer, clients: set[Client]) -> None:
        self._server = server
        self._clients = clients
        self._transfers = Transfers(server.transfers, identities.new_id())
        self._requests = Requests(server, self._transfers)
        self._subscriptions: dict[str, Any] = {}
        self._waiting: dict[str, dict[str, Any]] = {}
        self._greeted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.channel = FrameChannel(self._on_frames, self._on_closed)
        clients.add(self)

    def _on_closed(self, _: Exception | None) -> None:
        self._clients.discard(self)
        self._transfers.close()
        for run_id, callback in self._subscriptions.items():
            self._server.subscriptions.remove(run_id, callback)
        self._subscriptions.clear()

    def _on_frames(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self._on_frame(line)
            except (PiWorkflowsError, msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
                log.warning("a client was closed: %s", str(error)[:200])
                self.channel.close(ProtocolError(str(error)))
                return

    def _on_frame(self, line: bytes) -> None:
        canonical_json.check(line)
        frame = _decode(line)
        if frame.schema != CLIENT_SCHEMA:
            raise ProtocolError(f"schema {frame.schema[:80]!r} is not {CLIENT_SCHEMA}")
        if isinstance(frame, Hello):
            self._greet()
        elif not self._greeted:
            raise ProtocolError("the first frame is a hello")
        elif not isinstance(frame, Request):
            raise ProtocolError("only requests are heard after the hello")
        elif frame.operation == "content.write":
            self._take_part(frame)
        elif frame.operation == "subscribe":
            self._subscribe(str(frame.run_id))
            self._send(
                Response(error=None, outcome="accepted", receipt=None, request_id=frame.request_id, revision=None)
            )
        elif frame.operation == "unsubscribe":
            callback = self._subscriptions.pop(str(frame.run_id), None)
            if callback is not None:
                self._server.subscriptions.remove(str(frame.run_id), callback)
            self._send(
                Response(error=None, outcome="accepted", receipt=None, request_id=frame.request_id, revision=None)
            )
        elif frame.operation == "server.stop":
            self._send(Response(error=None, outcome="accepted", receipt={}, request_id=frame.request_id, revision=None))
            asyncio.get_running_loop().call_soon(self._stop_server)
        else:
            task = asyncio.get_running_loop().create_task(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take_part(self, request: Request) -> None:
        outcome: ClientOutcome = "accepted"
        said = None
        try:
            self._transfers.write(msgspec.convert(request.payload, ContentWrite))
        except StateUnavailableError as error:
            outcome, said = "unavailable", f"{type(error).__name__}: {error}"
        self._send(Response(error=said, outcome=outcome, receipt=None, request_id=request.request_id, revision=None))

    def _stop_server(self) -> None:
        self._server.request_stop()

    def _greet(self) -> None:
        ucred = self.channel.transport.get_extra_info("socket") if self.channel.transport else None
        if ucred is not None and hasattr(socket, "SO_PEERCRED"):
            _, uid, _ = struct.unpack("3i", ucred.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.getuid():
                raise ProtocolError("a client of another user")
        self._greeted = True
        self._send(Hello(client_id=self._server.ownership.server_id, kind="server", pid=os.getpid()))

    async def _answer(self, request: Request) -> None:
        self._send(await self._requests.handle(request))

    def _subscribe(self, run_id: str) -> None:
        if run_id in self._subscriptions:
            return

        def changed(view: dict[str, Any]) -> None:
            if self.channel.congested:
                self._waiting[run_id] = view
                self.channel.when_writable(self._send_waiting)
            else:
                self._send(Event(subject=run_id, view=view))

        self._subscriptions[run_id] = changed
        self._server.subscriptions.add(run_id, changed)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for run_id, view in waiting.items():
            self._send(Event(subject=run_id, view=view))

    def _send(self, frame: ClientFrame) -> None:
        self.channel.send(canonical_json.encode(msgspec.to_builtins(frame)))
