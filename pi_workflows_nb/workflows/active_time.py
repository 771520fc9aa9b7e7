"""Time that counts: the seconds in which this process was able to do something.

A process that is stopped (by a signal, with its machine's lid closed, with its virtual machine put away) is not told;
it only finds, once it goes on, that the clock went on without it. So one thread does nothing but look at the clock,
several times a second, and a look that comes late shows a stop. It may also come late because code held the
interpreter's lock all the while, which is no stop: the thread has then woken up at every switch interval to ask for the
lock, and the system has counted how often.
"""

from __future__ import annotations

import resource
import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue
from resource import getrusage
from sys import getswitchinterval
from time import monotonic, process_time
from typing import Final, ParamSpec, TypeVar

LOOK_SECONDS: Final = 0.25
LATE_SECONDS: Final = 0.25
"""A look that comes later than this shows a stop; a shorter one is not noticed."""

SLOW_WAITS: Final = 3
"""By how much waits for the lock may have been longer, on a busy machine, than the switch interval says."""

JOIN_SECONDS: Final = 1.0
_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)
_P = ParamSpec("_P")
_T = TypeVar("_T")


class ActiveTime:
    """A clock, in seconds, that stands still while this process is stopped. Any thread may read it.

    It errs in favour of whoever it measures: the moment of a look in which a stop fell does not count either.
    """

    def __init__(self) -> None:
        self._stopped = 0.0
        self._left_out = 0.0
        self._looked = inf
        self._askers: SimpleQueue[LockType | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._keep_looking, name="clock", daemon=True)

    def start(self) -> None:
        """Look out for stops from now on."""
        self._looked = monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Look out for them no more."""
        self._askers.put(None)
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)
        self._looked = inf

    def now(self) -> float:
        """Seconds since some fixed moment, without those of all stops until now."""
        while True:
            stopped, moment = self._stopped, monotonic()
            if moment - self._looked <= LOOK_SECONDS + LATE_SECONDS and stopped == self._stopped:
                return moment - stopped - self._left_out
            self._have_looked()

    def leave_out(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do something that takes no time on this clock. One thread at a time may."""
        began = self.now()
        try:
            return work(*args, **kwargs)
        finally:
            self._left_out += self.now() - began

    def _have_looked(self) -> None:
        if not self._thread.is_alive():  # as in a process that was forked off
            self._looked = inf
            return
        answered = allocate_lock()
        answered.acquire()
        self._askers.put(answered)
        answered.acquire(True, JOIN_SECONDS)

    def _keep_looking(self) -> None:
        looked, waited = self._looked, _waited_in_all()
        while True:
            try:
                asker = self._askers.get(True, LOOK_SECONDS)
                if asker is None:
                    return
            except Empty:
                asker = None
            now, waits = monotonic(), _waited_in_all()
            held_up = waits - waited
            idle = now - looked - held_up
            if idle > LOOK_SECONDS + LATE_SECONDS + held_up * SLOW_WAITS:
                self._stopped += idle
            self._looked, looked, waited = now, now, waits
            if asker is not None:
                asker.release()


def _waited_in_all() -> float:
    """Seconds for which this thread has waited for the interpreter's lock, at least.

    Where the system does not count how often a thread slept, it is the time in which the process was busy.
    """
    if _THREAD is None:
        return process_time()
    return getrusage(_THREAD).ru_nvcsw * getswitchinterval()
