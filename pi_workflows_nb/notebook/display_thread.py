"""The threads behind live views: one that owns all traits of all widgets, one that carries out what buttons ask for.

Views post what they want done under a key; a newer wish under the same key replaces the older one, and the display
thread carries all of them out at most ten times a second, more seldom when drawing takes long. A handler of a widget
runs on a thread of the kernel that must never be held up: it posts to the worker and returns. Both threads end when
nobody needs them any more.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

PERIOD: Final = 0.1
TICK: Final = 1.0
# Drawing takes a tenth of this thread's time at most.
REST: Final = 9.0

log = logging.getLogger(__name__)


class DisplayThread:
    """Carries out the newest wish of each view, on one thread, at most ten times a second."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._wishes: dict[Hashable, Callable[[], None]] = {}
        self._ticks: dict[Hashable, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._users = 0
        self._rounds = 0

    def enter(self) -> None:
        """A view begins; the thread lives from the first to the last."""
        with self._condition:
            self._users += 1

    def leave(self) -> None:
        """A view has ended."""
        with self._condition:
            self._users -= 1
            self._condition.notify_all()

    def post(self, key: Hashable, wish: Callable[[], None]) -> None:
        """Have something done soon, instead of what was posted under this key before. Never waits."""
        with self._condition:
            self._wishes[key] = wish
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="pi-workflows-display", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def tick(self, key: Hashable, action: Callable[[], None] | None) -> None:
        """Have something done each second in which nothing else is, such as moving a clock; None ends it."""
        with self._condition:
            if action is None:
                self._ticks.pop(key, None)
            else:
                self._ticks[key] = action

    def flush(self, seconds: float) -> bool:
        """Wait until everything posted so far is done; false when it took longer."""
        if threading.current_thread() is self._thread:
            return False
        with self._condition:
            return self._condition.wait_for(lambda: self._thread is None or not self._busy(), seconds)

    def _busy(self) -> bool:
        return bool(self._wishes) or self._rounds % 2 == 1

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._wishes and self._users > 0:
                    if not self._condition.wait(TICK if self._ticks else None):
                        self._wishes = dict(self._ticks)
                if not self._wishes:
                    self._thread = None
                    self._condition.notify_all()
                    return
                wishes, self._wishes = self._wishes, {}
                self._rounds += 1
            began = time.monotonic()
            for wish in wishes.values():
                try:
                    wish()
                except Exception:
                    log.exception("a live view could not be drawn")
            took = time.monotonic() - began
            with self._condition:
                self._rounds += 1
                self._condition.notify_all()
            time.sleep(max(PERIOD, REST * took) if self._users > 0 else 0)


class Worker:
    """Carries out posted actions one after the other, on one thread that ends after a while without work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._left = 0

    def post(self, action: Callable[[], None]) -> None:
        """Have something done after what was posted before. Never waits."""
        with self._lock:
            self._queue.put(action)
            self._left += 1
            if self._left == 1:
                threading.Thread(target=self._work, name="pi-workflows-actions", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                self._queue.get()()
            except Exception:
                log.exception("a wish of a live view could not be carried out")
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    return


DISPLAY: Final = DisplayThread()
WORKER: Final = Worker()
