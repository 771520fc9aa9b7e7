"""The server's end of a line-framed stream: frames in, frames out, with back-pressure on both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from ..wire.errors import ProtocolError
from ..wire.lines import Lines
from ..wire.runner_messages import MAX_FRAME_BYTES

HIGH_WATER: Final = 4 << 20
_READ_BYTES: Final = 1 << 18


class FrameChannel(asyncio.Protocol):
    """Splits what arrives into lines of at most 1 MiB and hands all complete lines of one read over together."""

    def __init__(
        self,
        on_frames: Callable[[list[bytes]], None],
        on_closed: Callable[[Exception | None], None],
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._error: Exception | None = None
        self._writable: Callable[[], None] | None = None
        self._lines = Lines(max_frame_bytes)
        self._held = False
        self.congested = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Hand over the complete lines."""
        try:
            lines = self._lines.cut(data)
        except ProtocolError as error:
            self.close(error)
            return
        if lines:
            self._on_frames(lines)

    def pause_writing(self) -> None:
        """Whoever does not read what it asked for is not read from."""
        self.congested = True
        self._flow()

    def resume_writing(self) -> None:
        """Read again, and send what was coalesced."""
        self.congested = False
        self._flow()
        writable, self._writable = self._writable, None
        if writable is not None:
            writable()

    def hold(self, held: bool) -> None:
        """Read nothing until it is released again, however much there is."""
        self._held = held
        self._flow()

    def _flow(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._held or self.congested:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once the other end has read enough."""
        self._writable = callback

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner, once, after all that the other end still wrote."""
        transport, self.transport = self.transport, None
        if transport is not None and isinstance(exc, OSError):
            # An answer that nobody reads any more broke the stream before it was read to its end.
            self._read_the_rest(transport.get_extra_info("socket").fileno())
        self._on_closed(exc or self._error)

    def _read_the_rest(self, descriptor: int) -> None:
        left = HIGH_WATER  # more than a socket holds: whoever is still writing is not waited for
        try:
            while left > 0 and self._error is None and (data := os.read(descriptor, _READ_BYTES)):
                left -= len(data)
                self.data_received(data)
        except OSError:
            pass

    def send(self, frame: bytes) -> None:
        """Send one frame; nothing happens when the other end is gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame + b"\n")

    def close(self, error: Exception | None = None) -> None:
        """Close this connection alone."""
        if self.transport is None:
            self._error = self._error or error
            return
        self._error = error
        if error is None:
            self.transport.close()
        else:
            self.transport.abort()
