"""Time as the server sees it: wall clock for the file, a monotonic one for everything that is waited for."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time; tests give one that they move."""

    def now(self) -> int:
        """Milliseconds since the epoch, for the file."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for waiting."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()
