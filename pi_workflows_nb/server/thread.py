"""The server in a background thread of the kernel: lives and dies with it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Final, TypeVar

from ..wire.client_messages import Farewell
from ..wire.errors import PiWorkflowsError, ServerStoppedError
from . import processes
from .options import Options
from .server import WorkflowServer

T = TypeVar("T")
SLICE_SECONDS: Final = 0.1


class ServerThread:
    """Runs a `WorkflowServer` on a loop of its own and lets other threads call it."""

    def __init__(self, path: Path, home: Path, options: Options) -> None:
        self._path, self._home, self._options = path, home, options
        self._started = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self.server: WorkflowServer
        self._thread = threading.Thread(target=self._main, name="pi-workflows-nb server", daemon=True)
        self._pid = os.getpid()
        self._unwanted = False
        self._ending = threading.Lock()
        self._stopped_callbacks: list[Callable[[], None]] = []

    def start(self) -> None:
        """Start and wait until it serves; the error that kept it from serving is raised here."""
        self._thread.start()
        try:
            self._started.wait()
        except BaseException:
            # An interrupt: whatever comes of the start ends by itself.
            self._unwanted = True
            raise
        if self._error is not None:
            self._thread.join()
            raise self._error
        atexit.register(self.leave)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            with self._ending:
                self._ended.set()
            self._started.set()
            for stopped in self._stopped_callbacks:
                stopped()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.server = WorkflowServer(self._path, self._home, self._options)
        await self.server.start()
        self._started.set()
        if self._unwanted:
            await self.server.stop()
        await self.server.wait_stopped()

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return not self._ended.is_set() and not processes.forked_child(self._pid)

    def call(self, work: Callable[[WorkflowServer], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the server's loop and wait for it, in slices, so that an interrupt gets through."""
        if processes.forked_child(self._pid):
            raise ServerStoppedError("this is a forked copy of the kernel: the server stayed in the original")
        if threading.current_thread() is self._thread:
            raise PiWorkflowsError("a blocking call on the server's own thread would wait for itself")
        if not self.alive:
            raise ServerStoppedError("the server has stopped: pw.start() starts one on the same file")
        future = asyncio.run_coroutine_threadsafe(work(self.server), self._loop)
        while True:
            try:
                return future.result(SLICE_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if self._ended.is_set():
                    future.cancel()
                    raise ServerStoppedError("the server stopped before it answered") from None
            except CancelledError:
                raise ServerStoppedError("the server stopped before it answered") from None

    def post(self, work: Callable[[WorkflowServer], None]) -> None:
        """Have something done on the server's loop, soon; nothing happens when it has stopped."""
        if self.alive:
            self._loop.call_soon_threadsafe(work, self.server)

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, on the server's thread, when it has ended; at once when it has already."""
        with self._ending:
            if not self._ended.is_set():
                self._stopped_callbacks.append(callback)
                return
        callback()

    def stop(self) -> None:
        """End runners, give the file back, end the thread; a second call does nothing."""
        self._stop("stopped")

    def leave(self) -> None:
        """The same at the end of this process: clients in other kernels may serve instead."""
        self._stop("leaving")

    def _stop(self, farewell: Farewell) -> None:
        atexit.unregister(self.leave)
        if processes.forked_child(self._pid) or self._ended.is_set():
            return
        asyncio.run_coroutine_threadsafe(self.server.stop(farewell), self._loop)
        self._ended.wait(15)
        self._thread.join(5)
