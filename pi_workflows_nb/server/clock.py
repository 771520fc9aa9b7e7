"""Time as the server sees it: wall clock for the file, a monotonic one for everything that is waited for."""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Protocol

TICK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 0.2
REMEMBERED_SECONDS: Final = 60.0


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


class Lateness:
    """How late the server's loop was: `now` seconds at its last tick, and the worst of the last minute."""

    def __init__(self) -> None:
        self.now = 0.0
        self._late: deque[tuple[float, float]] = deque(maxlen=1000)
        self._looked = 0.0
        self._held_up = 0.0

    def note(self, lag: float, moment: float) -> None:
        """Take what one tick, at `moment` on the monotonic clock, was late by; in seconds."""
        self.now = lag
        self.active(moment)
        if lag > LATE_SECONDS:
            self._late.append((moment, lag))

    def active(self, moment: float) -> float:
        """Seconds since some fixed moment, without those in which the loop was held up; what deadlines count by."""
        gap, self._looked = moment - self._looked, moment
        if gap > TICK_SECONDS + LATE_SECONDS:
            self._held_up += gap
        return moment - self._held_up

    def worst(self, moment: float) -> float:
        """The worst in the minute before `moment`; 0 when the loop was never late by more than it notices."""
        while self._late and self._late[0][0] < moment - REMEMBERED_SECONDS:
            self._late.popleft()
        return max((lag for _, lag in self._late), default=self.now)


class Drift:
    """What the machine's clocks did since this was made, in milliseconds."""

    def __init__(self) -> None:
        self._wall, self._asleep = _offsets()

    def wall_jump(self) -> int:
        """How far the wall clock was set forward, or, negative, back."""
        return round((_offsets()[0] - self._wall) * 1000)

    def suspended(self) -> int:
        """How long the machine slept."""
        return max(0, round((_offsets()[1] - self._asleep) * 1000))


def _offsets() -> tuple[float, float]:
    """Of the wall clock from one that goes on while the machine sleeps, and of that one from one that does not."""
    awake = time.monotonic()
    always = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else awake
    return time.time() - always, always - awake
