"""How a kernel talks to the server in its own background thread: the same requests as over the socket, without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from ..wire import identities
from ..wire.client_messages import Farewell, Request, Response
from ..wire.errors import NotFoundError, ServerStoppedError
from .contents import Transfers
from .requests import Requests
from .server import WorkflowServer
from .thread import ServerThread


class LocalConnection:
    """A client of the server thread of this process."""

    placement: Final = "thread"
    owner: Final = True

    def __init__(self, thread: ServerThread, project: Path, client_id: str | None = None) -> None:
        self._thread = thread
        self.database = thread.server.path
        self.project = project
        self.server_pid = os.getpid()
        self.server_id = thread.server.ownership.server_id
        self._client_id = client_id or f"kernel:{identities.new_id()}"
        self._requests = Requests(thread.server, Transfers(thread.server.transfers, "local"))

    @property
    def alive(self) -> bool:
        """Whether the server serves."""
        return self._thread.alive

    @property
    def ready(self) -> bool:
        """Whether it answers at once."""
        return self._thread.alive

    @property
    def farewell(self) -> Farewell | None:
        """How the server has ended; None while it serves."""
        return None if self._thread.alive else self._thread.server.farewell

    def request(
        self,
        operation: str,
        payload: dict[str, Any],
        *,
        run_id: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
    ) -> Response:
        """Ask and wait for the answer; can be interrupted. `ServerStoppedError` when there is no server any more."""
        request_id = identities.new_id()
        request = Request(
            client_id=client_id or self._client_id,
            expected_revision=None,
            idempotency_key=key or request_id,
            operation=operation,
            payload=payload,
            request_id=request_id,
            run_id=run_id,
        )

        async def handle(server: WorkflowServer) -> Response:
            if server.stopping:
                raise ServerStoppedError("the server is stopping: pw.start() starts one on the same file")
            return await self._requests.handle(request)

        return self._thread.call(handle)

    def value(self, canonical: bytes) -> dict[str, Any]:
        """A payload's value, of any size."""
        return {"inline": Raw(canonical)}

    def subscribe(self, run_id: str, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Have `callback` called with a run's live view, now and after each change, on the server's thread.

        Gives a function that ends it. `NotFoundError` where there is no such run.
        """

        async def follow(server: WorkflowServer) -> None:
            if server.view(run_id) is None:
                raise NotFoundError(f"no run {run_id!r} in this state file; server.runs() lists what it holds")
            server.subscriptions.add(run_id, callback)

        self._thread.call(follow)
        return lambda: self._thread.post(lambda server: server.subscriptions.remove(run_id, callback))

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, on the server's thread, when the server has stopped; at once when it has already."""
        self._thread.on_stopped(callback)

    def stop_server(self) -> None:
        """Stop the server; runs wait for the next start."""
        self._thread.stop()

    def close(self) -> None:
        """The server of a kernel lives as long as its connection; clients in other kernels may serve in its place."""
        self._thread.leave()
