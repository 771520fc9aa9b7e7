"""A connection to a server in another process: requests and subscriptions over its Unix socket.

One reader thread hands answers to those who wait for them, in slices, so that an interrupt of a kernel gets through.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import select
import socket
import struct
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..wire import canonical_json, identities
from ..wire.client_messages import (
    RUN_LIST,
    SERVER,
    ClientFrame,
    Event,
    Farewell,
    Hello,
    Leave,
    Request,
    Response,
    read_frame,
    write_frame,
)
from ..wire.decoding import of_kind
from ..wire.errors import (
    NotFoundError,
    ProtocolError,
    ServerRunningError,
    ServerStoppedError,
    StateUnavailableError,
)
from ..wire.lines import Lines
from ..wire.runner_messages import INLINE_BYTES, MAX_FRAME_BYTES, PART_BYTES

SLICE_SECONDS: Final = 0.1
GREETING_SECONDS: Final = 5.0
STOP_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
READ_BYTES: Final = 1 << 18

log = logging.getLogger(__name__)

_open: Final[weakref.WeakSet[SocketConnection]] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a copy of the socket would tell the server that this client lives as long as the child."""
    for connection in list(_open):
        connection._forget_socket()


os.register_at_fork(after_in_child=_let_go)


class SocketConnection:
    """A connection to the server that owns `database`; `process` is given where this process has started it.

    `farewell` says, once it is over, how the server ended: None when it ended without a word.
    """

    def __init__(
        self,
        path: Path,
        database: Path,
        project: Path,
        kind: str = "kernel",
        process: subprocess.Popen[str] | None = None,
        client_id: str | None = None,
    ) -> None:
        self.database = database
        self.project = project
        self.farewell: Farewell | None = None
        self._process = process
        self._client_id = client_id or f"{kind}:{identities.new_id()}"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._answers: dict[str, Response] = {}
        self._awaited: set[str] = set()
        self._arrived = threading.Condition()
        self._callbacks: dict[str, list[Callable[[dict[str, Any]], None]]] = {}
        self._newest: dict[str, dict[str, Any]] = {}
        self._stopped_callbacks: list[Callable[[], None]] = []
        self._closed = False
        self._over = False
        self._server_process: int | None = None
        self._following = threading.Lock()
        self._frames = Lines()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(GREETING_SECONDS)
            self._socket.connect(str(path))
            self._send(Hello(client_id=self._client_id, kind=kind, pid=self._pid))
            self._incoming = self._lines()
            line = next(self._incoming)
            self._socket.settimeout(None)
            greeting = read_frame(line)
        except (OSError, StopIteration) as error:
            self._socket.close()
            raise ServerStoppedError(f"the server of {database} does not answer on its socket: {error}") from None
        except ProtocolError as error:
            self._socket.close()
            raise ProtocolError(f"what answers on the socket is not a server of this system: {error}") from None
        if not isinstance(greeting, Hello):
            self._socket.close()
            raise ProtocolError("what answers on the socket is not a server of this system")
        self.server_pid = greeting.pid
        self.server_id = greeting.client_id
        self.placement = "process" if greeting.kind == "server" else "kernel"
        self._server_process = self._watch_server()
        _open.add(self)
        self._reader = threading.Thread(target=self._read, name="pi-workflows-nb client", daemon=True)
        self._reader.start()

    def _watch_server(self) -> int | None:
        """A descriptor that tells of the server's death even where a forked child of it holds the socket open."""
        if not hasattr(os, "pidfd_open") or not hasattr(socket, "SO_PEERCRED"):
            return None
        pid, _, _ = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            return os.pidfd_open(pid) if pid > 0 else None
        except OSError:
            return None

    @property
    def owner(self) -> bool:
        """Whether this process has started the server."""
        return self._process is not None

    @property
    def alive(self) -> bool:
        """Whether the server can be asked."""
        return not self._closed and os.getpid() == self._pid

    @property
    def ready(self) -> bool:
        """Whether it answers at once."""
        return self.alive

    def _send(self, frame: ClientFrame) -> None:
        data = write_frame(frame)
        if len(data) > MAX_FRAME_BYTES:
            raise ProtocolError("the request is larger than 1 MiB: give large values as the input")
        with self._lock:
            try:
                self._socket.sendall(data + b"\n")
            except BaseException:
                # Interrupted, perhaps in the middle of a frame: nothing can follow it.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise

    def _lines(self) -> Iterator[bytes]:
        """The frames that arrive, to the end of the stream or of the server's process."""
        while data := self._socket.recv(READ_BYTES) if self._wait_readable() else b"":
            yield from self._frames.cut(data)

    def _wait_readable(self) -> bool:
        """Wait for data; False when there is none and the server's process is gone."""
        if self._server_process is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._server_process, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        return self._socket.fileno() in ready

    def _read(self) -> None:
        try:
            for line in self._incoming:
                self._take(read_frame(line))
        except ProtocolError as error:
            log.warning("the server of %s is left, since it sent something else than a frame: %s", self.database, error)
        except (OSError, ValueError):
            pass  # closed, by whichever end
        finally:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            with self._arrived:
                self._closed = self._over = True
                self._arrived.notify_all()
                callbacks, self._stopped_callbacks = self._stopped_callbacks, []
            for stopped in callbacks:
                stopped()

    def _take(self, frame: ClientFrame) -> None:
        if isinstance(frame, Response):
            with self._arrived:
                if frame.request_id in self._awaited:
                    self._answers[frame.request_id] = frame
                    self._arrived.notify_all()
        elif isinstance(frame, Event) and frame.subject == SERVER:
            self.farewell = of_kind(Leave, frame.view).farewell
        elif isinstance(frame, Event):
            if frame.subject != RUN_LIST:
                self._newest[frame.subject] = frame.view
            for callback in list(self._callbacks.get(frame.subject, ())):
                callback(frame.view)

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
        with self._arrived:
            self._awaited.add(request_id)
        try:
            return self._send_and_wait(request)
        except OSError as error:
            raise ServerStoppedError(
                f"the server has stopped ({error}): pw.start() starts one on the same file"
            ) from None
        finally:
            self._awaited.discard(request_id)
            self._answers.pop(request_id, None)

    def _send_and_wait(self, request: Request) -> Response:
        self._send(request)
        with self._arrived:
            while request.request_id not in self._answers:
                if self._closed:
                    raise ServerStoppedError("the server stopped before it answered")
                self._arrived.wait(SLICE_SECONDS)
            return self._answers[request.request_id]

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

        Gives a function that ends it. `NotFoundError` where there is no such run.
        """
        return self._follow(run_id, {"subject": "run"}, run_id, callback)

    def subscribe_list(
        self, callback: Callable[[dict[str, Any]], None], *, limit: int = 100, project: str | None = None
    ) -> Callable[[], None]:
        """Have `callback` called with the newest runs, and after each change with those that changed.

        What it gets is `{"runs": [live views]}`. Gives a function that ends it.
        """
        return self._follow(RUN_LIST, {"limit": limit, "project": project, "subject": "runs"}, None, callback)

    def _follow(
        self, subject: str, asked: dict[str, Any], run_id: str | None, callback: Callable[[dict[str, Any]], None]
    ) -> Callable[[], None]:
        def end() -> None:
            with self._following:
                callbacks = self._callbacks.get(subject, [])
                if callback in callbacks:
                    callbacks.remove(callback)
                if callbacks or subject not in self._callbacks:
                    return
                del self._callbacks[subject]
                self._newest.pop(subject, None)
                if self.alive:
                    self.request("unsubscribe", {"subject": asked["subject"]}, run_id=run_id)

        with self._following:
            known = self._callbacks.setdefault(subject, [])
            known.append(callback)
            if len(known) > 1:
                newest = self._newest.get(subject)
                if newest is not None:
                    callback(newest)
                return end
            response = self.request("subscribe", asked, run_id=run_id)
            if response.outcome == "accepted":
                return end
            del self._callbacks[subject]
        raise NotFoundError((response.error or response.outcome).removeprefix("NotFoundError: "))

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, on the reader's thread, when the server is gone; at once when it is gone already."""
        with self._arrived:
            if not self._over:
                self._stopped_callbacks.append(callback)
                return
        callback()

    def stop_server(self) -> None:
        """Tell the server to stop, and wait until it has closed the connection; runs wait for the next start."""
        if self.alive:
            self.request("server.stop", {})
            self._reader.join(STOP_SECONDS)
        self.close()
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise ServerRunningError(
                    f"the server process {self._process.pid} does not end; kill {self._process.pid} ends it, and its"
                    " runs go on with the next start"
                ) from None

    def _forget_socket(self) -> None:
        watched, self._server_process = self._server_process, None
        for descriptor in (self._socket.detach(), watched):
            if descriptor is not None and descriptor >= 0:
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
        self._socket.close()
        if self._process is not None and self._over:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)  # somebody has to collect it
        watched, self._server_process = self._server_process, None
        if watched is not None:
            os.close(watched)
