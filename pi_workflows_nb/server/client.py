"""One client on the socket: its requests, answered with back-pressure, and what it follows.

A bad frame closes this connection alone. Whoever does not read what it asked for is not read from, and of what it
follows only the newest view is kept for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..state import viewer
from ..wire import identities
from ..wire.client_messages import (
    RUN_LIST,
    SERVER,
    ClientFrame,
    ClientOutcome,
    Event,
    Farewell,
    Hello,
    Request,
    Response,
    Subscribe,
    read_frame,
    write_frame,
)
from ..wire.decoding import of_kind
from ..wire.errors import ProtocolError, StateUnavailableError
from ..wire.runner_messages import MAX_FRAME_BYTES, ContentWrite
from .channel import FrameChannel
from .contents import Transfers
from .live_view import list_row
from .requests import Requests

if TYPE_CHECKING:
    from .server import WorkflowServer

AT_ONCE: Final = 32
"""Requests of one client that are worked at; the rest waits in its socket."""
MOST_FOLLOWED: Final = 1000
MOST_CHANGES: Final = 100
"""Runs of the list that changed at once; when more did, the list is sent anew."""

log = logging.getLogger(__name__)


class Client:
    """One connection."""

    def __init__(self, server: WorkflowServer, clients: set[Client]) -> None:
        self._server = server
        self._clients = clients
        self._transfers = Transfers(server.transfers, identities.new_id())
        self._requests = Requests(server, self._transfers)
        self._followed: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._sent: dict[str, int | None] = {}
        self._unsent: dict[str, dict[str, Any]] = {}
        self._list: Subscribe | None = None
        self._changed_rows: set[str] | None = set()
        self._greeted = False
        self._lines: deque[bytes] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.channel = FrameChannel(self._on_frames, self._on_closed)
        clients.add(self)

    def leave(self, farewell: Farewell) -> None:
        """Say how the server ends, and close."""
        self._send(Event(after=None, revision=0, subject=SERVER, targets=[], view={"farewell": farewell}))
        self.channel.close()

    def _on_closed(self, _: Exception | None) -> None:
        self._clients.discard(self)
        self._transfers.close()
        self._lines.clear()
        for run_id, callback in self._followed.items():
            self._server.subscriptions.remove(run_id, callback)
        self._server.subscriptions.remove_list(self._on_list)

    # -- frames -------------------------------------------------------------------------------------------------------

    def _on_frames(self, lines: list[bytes]) -> None:
        self._lines.extend(lines)
        self._go_on()

    def _go_on(self) -> None:
        """Send what was held back, then take the next frames, as far as this client reads and the server keeps up."""
        self._send_views()
        try:
            while self._lines and len(self._tasks) < AT_ONCE and not self.channel.congested:
                self._on_frame(self._lines.popleft())
        except ProtocolError as error:
            log.warning("a client was closed: %s", str(error)[:200])
            self._lines.clear()
            self.channel.close(error)
            return
        if self.channel.transport is None or self.channel.transport.is_closing():
            return
        if self.channel.congested:
            self.channel.when_writable(self._go_on)
        elif self._lines:
            self.channel.transport.pause_reading()
        else:
            self.channel.transport.resume_reading()

    def _on_frame(self, line: bytes) -> None:
        frame = read_frame(line)
        if isinstance(frame, Hello):
            self._greet()
        elif not self._greeted:
            raise ProtocolError("the first frame is a hello")
        elif not isinstance(frame, Request):
            raise ProtocolError("only requests are heard after the hello")
        else:
            task = asyncio.get_running_loop().create_task(self._answer(frame))
            self._tasks.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._lines:
            self._go_on()

    def _greet(self) -> None:
        ucred = self.channel.transport.get_extra_info("socket") if self.channel.transport else None
        if ucred is not None and hasattr(socket, "SO_PEERCRED"):
            _, uid, _ = struct.unpack("3i", ucred.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.getuid():
                raise ProtocolError("a client of another user")
        self._greeted = True
        kind = "kernel" if self._server.options.in_kernel else "server"
        self._send(Hello(client_id=self._server.ownership.server_id, kind=kind, pid=os.getpid()))

    async def _answer(self, request: Request) -> None:
        await self._server.serving.wait()
        if self._server.stopping:
            return  # who asked hears that the server leaves, and asks the next one, or nobody
        try:
            match request.operation:
                case "content.write":
                    self._take_part(request)
                case "subscribe":
                    self._subscribe(request)
                case "unsubscribe":
                    self._unsubscribe(request)
                case _:
                    self._send(await self._requests.handle(request))
        except ProtocolError as error:
            self._respond(request, "rejected", f"ProtocolError: malformed payload of {request.operation}: {error}")
        except Exception:
            log.exception("%s failed", request.operation[:80])
            self._respond(request, "rejected", f"{request.operation[:80]} failed inside the server; its log says why")

    def _take_part(self, request: Request) -> None:
        try:
            self._transfers.write(of_kind(ContentWrite, request.payload))
        except StateUnavailableError as error:
            self._respond(request, "unavailable", f"{type(error).__name__}: {error}")
        else:
            self._respond(request)

    def _respond(
        self,
        request: Request,
        outcome: ClientOutcome = "accepted",
        error: str | None = None,
        revision: int | None = None,
    ) -> None:
        self._send(
            Response(error=error, outcome=outcome, receipt=None, request_id=request.request_id, revision=revision)
        )

    def _send(self, frame: ClientFrame) -> None:
        data = write_frame(frame)
        if len(data) > MAX_FRAME_BYTES:
            log.warning("an answer of %d bytes does not fit into a frame", len(data))
            assert isinstance(frame, Response)
            frame = Response(
                error="the answer does not fit into a frame; ask for less",
                outcome="rejected",
                receipt=None,
                request_id=frame.request_id,
                revision=None,
            )
            data = write_frame(frame)
        self.channel.send(data)

    # -- what it follows ----------------------------------------------------------------------------------------------

    def _subscribe(self, request: Request) -> None:
        asked = of_kind(Subscribe, request.payload)
        if asked.subject == "session":
            self._respond(request, "unavailable", "a session is not followed; session.wait tells of its messages")
        elif asked.subject == "runs":
            self._respond(request)
            self._list, self._changed_rows, self._sent[RUN_LIST] = asked, None, 0
            self._server.subscriptions.remove_list(self._on_list)
            self._server.subscriptions.add_list(self._on_list)
            self._send_views()
        else:
            self._subscribe_run(request, asked.after)

    def _subscribe_run(self, request: Request, after: int | None) -> None:
        run_id = request.run_id or ""
        view = self._server.view(run_id)
        if view is None:
            said = f"NotFoundError: no run {run_id[:200]!r} in this state file; server.runs() lists what it holds"
            self._respond(request, "notFound", said)
            return
        if len(self._followed) >= MOST_FOLLOWED and run_id not in self._followed:
            self._respond(request, "rejected", f"a client follows at most {MOST_FOLLOWED} runs")
            return
        self._respond(request, revision=view["revision"])
        self._forget(run_id)

        def changed(view: dict[str, Any]) -> None:
            self._unsent[run_id] = view
            self._send_views()

        self._followed[run_id] = changed
        self._sent[run_id] = after
        self._server.subscriptions.add(run_id, changed)

    def _unsubscribe(self, request: Request) -> None:
        asked = of_kind(Subscribe, request.payload)
        if asked.subject == "runs":
            self._list = None
            self._server.subscriptions.remove_list(self._on_list)
        else:
            self._forget(request.run_id or "")
        self._respond(request)

    def _forget(self, run_id: str) -> None:
        callback = self._followed.pop(run_id, None)
        self._unsent.pop(run_id, None)
        self._sent.pop(run_id, None)
        if callback is not None:
            self._server.subscriptions.remove(run_id, callback)

    def _on_list(self, run_ids: set[str]) -> None:
        if self._changed_rows is not None:
            self._changed_rows |= run_ids
            if len(self._changed_rows) > MOST_CHANGES:
                self._changed_rows = None
        self._send_views()

    def _send_views(self) -> None:
        """Send the newest view of everything that changed; while this client does not read, it waits to be replaced."""
        while self._unsent and not self.channel.congested:
            run_id, view = self._unsent.popitem()
            try:
                _, targets = viewer.since(self._server.database.connection, run_id, self._sent[run_id])
            except sqlite3.ProgrammingError:
                return  # the file is given back already
            after = None if targets is None else self._sent[run_id]
            self._sent[run_id] = view["viewRevision"]
            self._send(
                Event(after=after, revision=view["viewRevision"], subject=run_id, targets=targets or [], view=view)
            )
        if self._list is not None and self._changed_rows != set() and not self.channel.congested:
            self._send_list(self._list)
        if self.channel.congested:
            self.channel.when_writable(self._go_on)

    def _send_list(self, asked: Subscribe) -> None:
        changed, self._changed_rows = self._changed_rows, set()
        before = self._sent[RUN_LIST] or 0
        if changed is None:
            rows = self._server.run_list(asked.limit, asked.project)
        else:
            views = (self._server.view(run_id) for run_id in sorted(changed))
            project_id = None if asked.project is None else identities.project_id(asked.project)
            rows = [list_row(view) for view in views if view and project_id in (None, view["projectId"])]
            if not rows:
                return
        self._sent[RUN_LIST] = before + 1
        self._send(
            Event(
                after=None if changed is None else before,
                revision=before + 1,
                subject=RUN_LIST,
                targets=[],
                view={"runs": rows},
            )
        )
