"""The life of one child of the nursery, whatever it is for: start, handshake, talk, end, and one word on how it ended.

Whoever supervises a kind of child gives what it is started with and hears its frames; what they mean is no business of
this one. A child that does not keep to its protocol is stopped, and nothing else is hurt by it. The end is the child's
wait status, never the end of its stream, and comes when all it wrote was heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..state.runners import DIAGNOSTIC_BYTES, RunnerOutcome
from ..wire.errors import PiWorkflowsError, ProtocolError
from ..wire.runner_messages import MAX_FRAME_BYTES
from . import logs
from .channel import FrameChannel
from .clock import TICK_SECONDS
from .launch import Diagnostics

if TYPE_CHECKING:
    from .nursery import Child
    from .server import WorkflowServer

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 15.0
LAST_WORDS_SECONDS: Final = 1.0
FAULT_CHARACTERS: Final = 500


@dataclass(frozen=True)
class ChildSpec:
    """What a child is started with.

    `label` names it in logs; `mode` is the entry's (`run`, `inspect`, …); `envelope` its first line; `environment` None
    is the one that the nursery had at its start; what it prints goes to the file `log`.
    """

    label: str
    mode: str
    epoch: str
    envelope: bytes
    environment: Mapping[str, str] | None
    folder: str
    log: Path
    max_frame_bytes: int = MAX_FRAME_BYTES


@dataclass(frozen=True)
class ChildEnd:
    """How a child ended.

    `status` is its exit code, the negative number of the signal that ended it, or None when nobody saw (its nursery
    ended) or it never was (`spawned` is false then). `diagnostic` is what was noted of it, at most 64 KiB.
    """

    outcome: RunnerOutcome
    status: int | None
    spawned: bool
    diagnostic: str

    @property
    def exit_code(self) -> int | None:
        """The exit code, None after a signal."""
        return self.status if self.status is not None and self.status >= 0 else None

    @property
    def signal_name(self) -> str | None:
        """The name of the signal that ended it, as `SIGKILL`."""
        if self.status is None or self.status >= 0:
            return None
        return signal.Signals(-self.status).name if -self.status in set(signal.Signals) else f"signal {-self.status}"


class ChildRunnerSupervisor:
    """Starts, hears and ends one child. Used on the server's loop.

    `on_frame` gets each frame the child sends; an error it raises is a breach of the protocol. The handshake is over
    with `said_ready`, and the child's word that it leaves is noted with `said_exiting`: both are called by `on_frame`.
    """

    def __init__(
        self, server: WorkflowServer, spec: ChildSpec, on_frame: Callable[[bytes], None], diagnostics: Diagnostics
    ) -> None:
        self._server = server
        self._spec = spec
        self._on_frame = on_frame
        self.diagnostics = diagnostics
        self.outcome: RunnerOutcome | None = None
        self.child: Child | None = None
        self._channel = FrameChannel(self._on_frames, self._on_closed, spec.max_frame_bytes)
        self._connected = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping: asyncio.Task[int | None] | None = None
        self._closed = asyncio.Event()
        self._lines: deque[bytes] = deque()
        self._held = False
        self._gone = False
        self._deaf = False
        self._exiting = False

    async def live(self, on_ready: Callable[[], None]) -> ChildEnd:
        """The whole life. `on_ready` is called after the handshake. Never raises: what goes wrong is the outcome's."""
        try:
            await self._start()
        except (TimeoutError, PiWorkflowsError, OSError) as error:
            self.diagnostics.add(
                str(error) or f"the {self._spec.label} did not answer within {HANDSHAKE_SECONDS:.0f} s of its start"
            )
            if self.child is None:
                return self._ended(None)
            self.stop("crashed")
        else:
            if self._ready.done():
                on_ready()
        assert self.child is not None
        status = await self.child.exited
        if self._stopping is not None:
            await self._stopping
        await self._hear_out()
        self._channel.close()
        await self._server.processes.end(self._spec.epoch)
        return self._ended(status)

    def send(self, frame: bytes) -> None:
        """Send one line; nothing happens when the child is gone."""
        self._channel.send(frame)

    def hold(self, held: bool) -> None:
        """Hear nothing more of the child until it is released again."""
        self._held = held
        if not held:
            self._hear()

    def said_ready(self) -> None:
        """The child is there."""
        if not self._ready.done():
            self._ready.set_result(None)

    def said_exiting(self) -> None:
        """The child leaves by itself: its exit code 0 is no crash."""
        self._exiting = True

    def stop(self, outcome: RunnerOutcome) -> None:
        """End the child's group: SIGTERM, 2 s, SIGKILL. The first outcome given counts."""
        self._note(outcome)
        if self._stopping is None and self.child is not None:
            self._stopping = asyncio.get_running_loop().create_task(self.child.stop())

    def kill(self, outcome: RunnerOutcome) -> None:
        """End the child's group at once."""
        self._note(outcome)
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    # -- the way of a life --------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        server, spec = self._server, self._spec
        self.child = await server.nursery.spawn(
            mode=spec.mode, environment=spec.environment, folder=spec.folder, log=spec.log, epoch=spec.epoch
        )
        server.processes.add(spec.epoch, self.child.pid, self.child.identity)
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=self.child.socket)
        self._connected = True
        if self.outcome is not None:
            self.kill(self.outcome)  # whoever stopped it could not reach it yet
            return
        self.send(spec.envelope)
        await self._shake_hands()

    async def _shake_hands(self) -> None:
        """Wait for the first word, or an end without one; `TimeoutError` when the child stays silent."""
        assert self.child is not None
        heard: tuple[asyncio.Future[Any], ...] = (self._ready, self.child.exited)
        give_up = self._active_time() + HANDSHAKE_SECONDS
        while not (await asyncio.wait(heard, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
            if self._active_time() > give_up:
                raise TimeoutError

    def _active_time(self) -> float:
        return self._server.lateness.active(self._server.clock.monotonic())

    async def _hear_out(self) -> None:
        """What the child wrote before it ended is heard before its end is judged."""
        self._gone = True
        if self._connected and not self._exiting:
            self._hear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), LAST_WORDS_SECONDS)

    def _ended(self, status: int | None) -> ChildEnd:
        self._deaf = True
        self._server.processes.remove(self._spec.epoch)
        self._ready.cancel()
        if self.outcome is None:
            self.outcome = "exited" if status == 0 and self._exiting else "crashed"
        printed = logs.tail(self._spec.log, DIAGNOSTIC_BYTES) if self.outcome == "crashed" else ""
        return ChildEnd(self.outcome, status, self.child is not None, self.diagnostics.text(printed))

    def _note(self, outcome: RunnerOutcome) -> None:
        if self.outcome is None:
            self.outcome = outcome

    # -- what it says -------------------------------------------------------------------------------------------------

    def _on_frames(self, lines: list[bytes]) -> None:
        self._lines.extend(lines)
        self._hear()

    def _hear(self) -> None:
        """Take frames one by one, as long as the child reads what it is answered; what it sends then waits in its pipe.

        Of a child that is gone all is taken: it cannot ask for more.
        """
        while self._lines and not self._deaf:
            if not self._gone and (self._held or self._channel.congested):
                self._channel.hold(True)
                self._channel.when_writable(self._hear)
                return
            try:
                self._on_frame(self._lines.popleft())
            except Exception as error:
                if not isinstance(error, PiWorkflowsError | ValueError | RecursionError):
                    log.exception("a frame of %s could not be handled", self._spec.label)
                self._refuse(str(error))
        self._channel.hold(False)

    def _on_closed(self, error: Exception | None) -> None:
        self._closed.set()
        if isinstance(error, ProtocolError):
            self._refuse(str(error))

    def _refuse(self, text: str) -> None:
        if self._deaf:
            return
        self._deaf = True
        self._lines.clear()
        self.diagnostics.add(f"protocol: {text[:FAULT_CHARACTERS]}")
        log.warning("%s stopped: %s", self._spec.label, text[:200])
        self.kill("crashed")
