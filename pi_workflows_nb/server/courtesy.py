"""A server in a kernel's thread gives way to a cell that computes.

Python hands the interpreter to a waiting thread after each switch interval, so a busy server would take half of a busy
cell's time, or more. Two signs together tell that a cell wants the interpreter: other threads of this process use the
processor, and the interpreter, given up for a moment, does not come back at once. Then the server rests until what it
has worked is a small share of the time since its last rest, in which it mostly waited for the interpreter: the cell
keeps about nine tenths of its speed, and runs go on at a tenth of theirs or more.
"""

from __future__ import annotations

import time
from typing import Final

SHARE: Final = 0.1
LONGEST_REST_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 0.02
BUSY_SHARE: Final = 0.2
SWITCHED_SECONDS: Final = 0.0002


class Courtesy:
    """Called on the server's thread, after each piece of its work."""

    def __init__(self) -> None:
        self._worked = time.thread_time()
        self._rested = time.perf_counter()
        self._looked = (time.perf_counter(), self._others())
        self._busy = False

    def rest(self) -> None:
        """Rest if a cell wants the interpreter."""
        now, others = time.perf_counter(), self._others()
        if now - self._looked[0] > WINDOW_SECONDS:
            self._busy = others - self._looked[1] > BUSY_SHARE * (now - self._looked[0])
            self._looked = (now, others)
        if self._busy:
            time.sleep(0)
            if time.perf_counter() - now > SWITCHED_SECONDS:
                due = self._rested + (time.thread_time() - self._worked) / SHARE - time.perf_counter()
                time.sleep(min(max(0.0, due), LONGEST_REST_SECONDS))
        self._worked, self._rested = time.thread_time(), time.perf_counter()

    @staticmethod
    def _others() -> float:
        """Processor seconds of all other threads of this process."""
        return time.process_time() - time.thread_time()
