"""A client of a server in another process: requests and subscriptions over its Unix socket.

One reader thread hands answers to those who wait for them, in slices, so that an interrupt of a kernel gets through.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from ..wire import canonical_json, identities
from ..wire.client_messages import CLIENT_SCHEMA, ClientFrame, Event, Hello, Request, Response
from ..wire.errors import ProtocolError, ServerRunningError, ServerStoppedError, StateUnavailableError
from ..wire.runner_messages import INLINE_BYTES, MAX_FRAME_BYTES, PART_BYTES

SLICE_SECONDS: Final = 0.1
_decode = msgspec.json.Decoder(ClientFrame).decode


_open: Final[weakref.WeakSet[SocketConnection]] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a copy of the socket would tell the server that this client lives as long as the child."""
    for connection in list(_open):
        connection._forget_socket()


os.register_at_fork(after_in_child=_let_go)


class SocketConnection:
    """A connection to the server that owns `database`; `process` is given where this process has started it."""

    placement: Final = "process"

    def __init__(
        self,
        path: Path,
        database: Path,
        project: Path,
        kind: str = "kernel",
        process: subprocess.Popen[str] | None = None,
    ) -> None:
        self.database = database
        self.project = project
        self._process = process
        self._client_id = f"{kind}:{identities.new_id()}"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._answers: dict[str, Response] = {}
        self._arrived = threading.Condition()
        self._callbacks: dict[str, list[Callable[[dict[str, Any]], None]]] = {}
        self._newest: dict[str, dict[str, Any]] = {}
        self._stopped_callbacks: list[Callable[[], None]] = []
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
            self._send(Hello(client_id=self._client_id, kind=kind, pid=self._pid))
            self._stream = self._socket.makefile("rb")
            greeting = _decode(self._stream.readline(MAX_FRAME_BYTES + 1))
        except (OSError, msgspec.MsgspecError) as error:
            self._socket.close()
            raise ServerStoppedError(f"the server of {database} does not answer on its socket: {error}") from None
        if not isinstance(greeting, Hello) or greeting.schema != CLIENT_SCHEMA:
            raise ProtocolError("what answers on the socket is not a server of this system")
        self.server_pid = greeting.pid
        _open.add(self)
        self._reader = threading.Thread(target=self._read, name="pi-workflows-nb client", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the server can be asked."""
        return not self._closed and os.getpid() == self._pid

    def _send(self, frame: ClientFrame) -> None:
        data = canonical_json.encode(msgspec.to_builtins(frame))
        if len(data) > MAX_FRAME_BYTES:
            raise ProtocolError("the request is larger than 1 MiB: give large values as the input")
        with self._lock:
            self._socket.sendall(data + b"\n")

    def _read(self) -> None:
        try:
            while line := self._stream.readline(MAX_FRAME_BYTES + 1):
                frame = _decode(line)
                if isinstance(frame, Response):
                    with self._arrived:
                        self._answers[frame.request_id] = frame
                        self._arrived.notify_all()
                elif isinstance(frame, Event):
                    self._newest[frame.subject] = frame.view
                    for callback in list(self._callbacks.get(frame.subject, ())):
                        callback(frame.view)
        except (OSError, ValueError, msgspec.MsgspecError):
            pass
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
        for stopped in self._stopped_callbacks:
            stopped()

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
        if not self.alive:
            raise ServerStoppedError("the server has stopped: pw.start() starts one on the same file")
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
        try:
            self._send(request)
        except OSError as error:
            raise ServerStoppedError(
                f"the server has stopped ({error}): pw.start() starts one on the same file"
            ) from None
        with self._arrived:
            while request_id not in self._answers:
                if self._closed:
                    raise ServerStoppedError("the server stopped before it answered")
                self._arrived.wait(SLICE_SECONDS)
            return self._answers.pop(request_id)

    def value(self, canonical: bytes) -> dict[str, Any]:
        """A payload's value; a large one is transferred first, in parts. `StateUnavailableError` for a full disk."""
        if len(canonical) <= INLINE_BYTES:
            return {"inline": canonical_json.decode(canonical)}
        digest = identities.sha256_hex(canonical)
        content = {"bytes": len(canonical), "mediaType": "application/json", "sha256": digest}
        for offset in range(0, len(canonical), PART_BYTES):
            part = base64.b64encode(canonical[offset : offset + PART_BYTES]).decode()
            answer = self.request("content.write", {**content, "base64": part, "offset": offset})
            if answer.outcome != "accepted":
                said = (answer.error or answer.outcome).removeprefix("StateUnavailableError: ")
                raise StateUnavailableError(f"a value of {len(canonical):,} bytes could not be handed over: {said}")
        return {"content": content}

    def subscribe(self, run_id: str, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Have `callback` called with a run's live view, now and after each change, on the reader's thread.

        Gives a function that ends it.
        """
        callbacks = self._callbacks.setdefault(run_id, [])
        callbacks.append(callback)
        if len(callbacks) == 1:
            self.request("subscribe", {}, run_id=run_id)
        elif run_id in self._newest:
            callback(self._newest[run_id])

        def end() -> None:
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks and self.alive:
                self._callbacks.pop(run_id, None)
                self._newest.pop(run_id, None)
                self.request("unsubscribe", {}, run_id=run_id)

        return end

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, on the reader's thread, when the server is gone."""
        self._stopped_callbacks.append(callback)

    def stop_server(self) -> None:
        """Tell the server to stop, and wait until it has closed the connection; runs wait for the next start."""
        if self.alive:
            self.request("server.stop", {})
            self._reader.join(15)
        self.close()
        if self._process is not None:
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                raise ServerRunningError(
                    f"the server process {self._process.pid} does not end; kill {self._process.pid} ends it, and its"
                    " runs go on with the next start"
                ) from None

    def _forget_socket(self) -> None:
        # Past the stream, whose lock the reader thread, which is not copied, holds for ever here.
        descriptor = self._socket.detach()
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        """Leave; the server goes on."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if threading.current_thread() is not self._reader:
            self._reader.join(5)
        self._stream.close()
        self._socket.close()
