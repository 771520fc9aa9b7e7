"""The way of this kernel to whoever serves a file, whichever process that is by now.

When the server dies without having been stopped, its clients try to serve in its place, each after a moment of its own
choice. One becomes the owner, the others attach to it. Requests under way are sent again with their idempotency keys,
and what was followed is followed again, so that nobody above notices more than a pause.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import (
    PiWorkflowsError,
    ProtocolError,
    ServerRunningError,
    ServerStoppedError,
    StateFileError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pi_workflows_nb.wire.client_messages import Farewell, Response

    from .link import Connection
    from .place import Place

SLICE_SECONDS: Final = 0.1
JITTER_SECONDS: Final = 0.3
"""Within this time after a death each client makes its first try."""
NEXT_SECONDS: Final = (0.3, 1.0)
LOOK_SECONDS: Final = 0.03
PATIENCE_SECONDS: Final = 60.0
RACE_SECONDS: Final = 5.0
END_SECONDS: Final = 20.0
MOST_TRIES: Final = 3
"""How often one request may lose its connection to one and the same server."""
STOPPED: Final = "the server has stopped: pw.start() starts one on the same file"


class Carried(dict[str, Any]):
    """A value on its way: handed over to each server that the request is sent to, large ones in parts."""

    def __init__(self, canonical: bytes) -> None:
        super().__init__()
        self.canonical = canonical


class _StoppedMeanwhile(Exception):
    """Another client served, and was stopped before this one had found it."""


class _Follower:
    """Who wants to hear of a run, across servers."""

    def __init__(self, run_id: str, callback: Callable[[dict[str, Any]], None]) -> None:
        self.run_id = run_id
        self._callback = callback
        self._lock = threading.Lock()
        self._followed: Connection | None = None
        self._end: Callable[[], None] = lambda: None
        self._over = False

    def join(self, connection: Connection) -> None:
        """Follow the run on this connection, if not done yet."""
        with self._lock:
            if self._followed is connection or self._over:
                return
            self._end = connection.subscribe(self.run_id, self._deliver)
            self._followed = connection

    def leave(self) -> None:
        """Hear no more."""
        self._over = True
        with self._lock:
            try:
                self._end()
            except PiWorkflowsError:
                pass

    def _deliver(self, view: dict[str, Any]) -> None:
        if not self._over:
            self._callback(view)


class Attachment:
    """A connection that outlives the server it leads to."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client_id = f"kernel:{identities.new_id()}"
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._present: Connection | None = None
        self._newest: Connection
        self._epoch = 0
        self._leaving = False
        self._ended: str | None = None
        self._followers: list[_Follower] = []
        self._stopped_callbacks: list[Callable[[], None]] = []

    def open(self) -> None:
        """Find the server, or become it."""
        connection: Connection | None = self._place.attach(self._client_id)
        if connection is None:
            try:
                connection = self._place.serve(self._client_id)
            except ServerRunningError:
                # It has won by a moment, and opens its socket just now.
                connection = self._look_for(RACE_SECONDS)
                if connection is None:
                    raise
        self._adopt(connection)

    # -- what it leads to ---------------------------------------------------------------------------------------------

    @property
    def database(self) -> Path:
        """The state file."""
        return self._place.database

    @property
    def project(self) -> Path:
        """The folder of the workflows."""
        return self._place.project

    @property
    def server_pid(self) -> int:
        """The process that serves, or did last."""
        return self._newest.server_pid

    @property
    def server_id(self) -> str:
        """The server that serves, or did last."""
        return self._newest.server_id

    @property
    def placement(self) -> str:
        """`thread` (in this kernel), `process` (in one of its own), or `kernel` (in another kernel)."""
        return self._newest.placement

    @property
    def owner(self) -> bool:
        """Whether this kernel has started the server."""
        return self._newest.owner

    @property
    def alive(self) -> bool:
        """Whether there is a server, or will be one in a moment."""
        return self._ended is None and not self._leaving and os.getpid() == self._pid

    @property
    def ready(self) -> bool:
        """Whether a server answers at once."""
        present = self._present
        return self.alive and present is not None and present.ready

    @property
    def farewell(self) -> Farewell | None:
        """How the last server has ended; None while one serves."""
        return None if self.alive else self._newest.farewell

    # -- asking -------------------------------------------------------------------------------------------------------

    def request(
        self,
        operation: str,
        payload: dict[str, Any],
        *,
        run_id: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
    ) -> Response:
        """Ask and wait for the answer, whoever gives it; can be interrupted. `ServerStoppedError`."""
        key = key or identities.new_id()
        tried: list[str] = []
        while True:
            connection = self._connected()
            try:
                sent = {
                    name: connection.value(value.canonical) if isinstance(value, Carried) else value
                    for name, value in payload.items()
                }
                return connection.request(
                    operation, sent, run_id=run_id, key=key, client_id=client_id or self._client_id
                )
            except ServerStoppedError:
                tried.append(connection.server_id)
                if os.getpid() != self._pid or not self._wait_for_the_next(connection):
                    raise
                if tried.count(connection.server_id) >= MOST_TRIES:
                    raise ProtocolError(f"the server closes the connection on {operation} each time") from None

    def _connected(self) -> Connection:
        if os.getpid() != self._pid:
            return self._newest  # whose refusal says why
        with self._changed:
            while self._present is None:
                if self._ended is not None:
                    raise ServerStoppedError(self._ended)
                self._changed.wait(SLICE_SECONDS)
            return self._present

    def _wait_for_the_next(self, connection: Connection) -> bool:
        """Wait until this connection is known to be over; False when it stays."""
        give_up = time.monotonic() + END_SECONDS
        with self._changed:
            while self._present is connection and time.monotonic() < give_up:
                self._changed.wait(SLICE_SECONDS)
            return self._present is not connection and self._ended is None

    def value(self, canonical: bytes) -> dict[str, Any]:
        """A payload's value, of any size."""
        return Carried(canonical)

    # -- following ----------------------------------------------------------------------------------------------------

    def subscribe(self, run_id: str, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Have `callback` called with a run's live view, now and after each change, on a thread of the connection.

        Gives a function that ends it. `NotFoundError` where there is no such run.
        """
        follower = _Follower(run_id, callback)

        def end() -> None:
            if follower in self._followers:
                self._followers.remove(follower)
            follower.leave()

        connection = self._connected()
        self._followers.append(follower)
        try:
            follower.join(connection)
        except ServerStoppedError:
            pass  # whoever serves next is joined then
        except BaseException:
            end()
            raise
        return end

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, on some thread, when the server was stopped and nobody serves in its place."""
        with self._changed:
            if self._ended is None:
                self._stopped_callbacks.append(callback)
                return
        callback()

    # -- one server after the other -----------------------------------------------------------------------------------

    def _adopt(self, connection: Connection) -> None:
        self._epoch, _ = self._place.ownership()
        with self._changed:
            self._newest = self._present = connection
            self._changed.notify_all()
        connection.on_stopped(lambda: self._over(connection))
        for follower in list(self._followers):
            try:
                follower.join(connection)
            except PiWorkflowsError:
                continue  # gone from the file; or the server is, and the next one is joined

    def _over(self, connection: Connection) -> None:
        """A server is gone. Called on a thread of its connection."""
        with self._changed:
            if self._present is not connection:
                return
            self._present = None
            self._changed.notify_all()
        if self._leaving or connection.farewell == "stopped":
            self._end(STOPPED)
            connection.close()
            return
        try:
            threading.Thread(
                target=self._go_on_after, args=(connection,), name="pi-workflows-nb take-over", daemon=True
            ).start()
        except RuntimeError:
            self._end(STOPPED)  # this process ends, too

    def _go_on_after(self, gone: Connection) -> None:
        gone.close()
        give_up = time.monotonic() + PATIENCE_SECONDS
        wait = random.uniform(0, JITTER_SECONDS)
        failure = STOPPED
        while time.monotonic() < give_up:
            try:
                connection = self._look_for(wait) or self._serve(
                    polite=time.monotonic() < give_up - PATIENCE_SECONDS / 2
                )
            except _StoppedMeanwhile:
                break
            except StateFileError as error:
                failure = f"the server has gone, and this kernel cannot serve in its place: {error}"
                break
            except PiWorkflowsError as error:
                # Another client has won by a moment, or the disk is full just now.
                failure = f"the server has gone, and nobody could serve in its place: {error}"
            else:
                if connection is not None and self._leaving:
                    connection.close()
                elif connection is not None:
                    self._adopt(connection)
                    return
            if self._leaving:
                break
            wait = random.uniform(*NEXT_SECONDS)
        self._end(failure)

    def _serve(self, *, polite: bool) -> Connection | None:
        """Become the server; None, while `polite`, when another client is about to: one start is quicker than many."""
        with self._place.alone() as alone:
            if polite and not alone:
                return None
            epoch, given_back = self._place.ownership()
            if given_back and 0 < self._epoch < epoch:
                raise _StoppedMeanwhile
            return self._place.attach(self._client_id) or self._place.serve(self._client_id)

    def _look_for(self, seconds: float) -> Connection | None:
        """Look for the socket of a server for so long."""
        give_up = time.monotonic() + seconds
        while True:
            connection = self._place.attach(self._client_id)
            if connection is not None or self._leaving or time.monotonic() > give_up:
                return connection
            time.sleep(LOOK_SECONDS)

    def _end(self, why: str) -> None:
        with self._changed:
            if self._ended is not None:
                return
            self._ended = why
            self._present = None
            self._changed.notify_all()
            callbacks, self._stopped_callbacks = self._stopped_callbacks, []
        self._followers.clear()
        for stopped in callbacks:
            stopped()

    # -- leaving ------------------------------------------------------------------------------------------------------

    def stop_server(self) -> None:
        """Stop the server, wherever it lives; runs wait for the next start."""
        connection = self._connected()
        self._leaving = True
        try:
            connection.stop_server()
        finally:
            self._end(STOPPED)

    def close(self) -> None:
        """Leave the server; the one in this kernel stops."""
        if os.getpid() != self._pid:
            return
        self._leaving = True
        connection = self._present
        if connection is not None:
            connection.close()
        self._end(STOPPED)
