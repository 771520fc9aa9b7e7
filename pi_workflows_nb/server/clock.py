"""Time as the server sees it: wall clock for the file, a monotonic one for everything that is waited for.

A wall clock can be set while the server runs. The server's own goes on as if it had not been, until a transaction has
moved what lasts by it in the file (`clock_set`), and follows then.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple, Protocol

TICK_SECONDS: Final = 0.5
LATE_SECONDS: Final = 0.2
JUMP_MS: Final = 100
READ_NS: Final = 5_000_000
REMEMBERED_SECONDS: Final = 60.0


class Jump(NamedTuple):
    """By how many ms a wall clock was set forward, or, negative, back; `asleep` of them the machine has slept."""

    by: int
    asleep: int


class Clock(Protocol):
    """A source of time; tests give one that they move."""

    def now(self) -> int:
        """Milliseconds since the epoch, for the file; does not jump but by `follow`."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, for waiting."""

    def jump(self) -> Jump | None:
        """By how much the machine's wall clock was set from `now`; None when it was not."""

    def follow(self, jump: Jump) -> None:
        """Go along with a jump."""


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._ahead = _wall_ahead()
        self._slept = _slept()

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return (time.monotonic_ns() + self._ahead) // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def jump(self) -> Jump | None:
        """A sleep of the machine is a jump as well. Small corrections are followed at once, and are none."""
        ahead = _wall_ahead()
        by = (ahead - self._ahead) // 1_000_000
        if abs(by) >= JUMP_MS:
            return Jump(by, max(0, (_slept() - self._slept) // 1_000_000))
        self._ahead = ahead
        return None

    def follow(self, jump: Jump) -> None:
        """Go along with a jump."""
        self._ahead += jump.by * 1_000_000
        self._slept += jump.asleep * 1_000_000


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


def _wall_ahead() -> int:
    """Nanoseconds from the monotonic clock to the wall clock, read while nothing held this thread up in between."""
    while True:
        before = time.monotonic_ns()
        wall = time.time_ns()
        if time.monotonic_ns() - before < READ_NS:
            return wall - before


def _slept() -> int:
    """Nanoseconds for which the machine has slept, or was held up between two looks at its clocks."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()


def _offsets() -> tuple[float, float]:
    """Of the wall clock from one that goes on while the machine sleeps, and of that one from one that does not."""
    awake = time.monotonic()
    always = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else awake
    return time.time() - always, always - awake
