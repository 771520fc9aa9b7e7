"""Who follows a run, or the list of runs: told after each change, coalesced to 20 times a second."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final

from .clock import Clock

VIEW_SECONDS: Final = 0.05
View = dict[str, Any]


class Subscriptions:
    """Who follows what. `look` gives the live view of a run, or None where there is no such run."""

    def __init__(self, look: Callable[[str], View | None], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._callbacks: dict[str, list[Callable[[View], None]]] = {}
        self._lists: list[Callable[[set[str]], None]] = []
        self._dirty: set[str] = set()
        self._published = 0.0

    def add(self, run_id: str, callback: Callable[[View], None]) -> None:
        """Have `callback` called with the live view now and after each change."""
        self._callbacks.setdefault(run_id, []).append(callback)
        view = self._look(run_id)
        if view is not None:
            callback(view)

    def remove(self, run_id: str, callback: Callable[[View], None]) -> None:
        """Stop calling `callback`; a second time does nothing."""
        callbacks = self._callbacks.get(run_id, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            self._callbacks.pop(run_id, None)

    def add_list(self, callback: Callable[[set[str]], None]) -> None:
        """Have `callback` called with the ids of the runs that changed, or are new, after each change."""
        self._lists.append(callback)

    def remove_list(self, callback: Callable[[set[str]], None]) -> None:
        """Stop calling `callback`; a second time does nothing."""
        if callback in self._lists:
            self._lists.remove(callback)

    def changed(self, run_ids: set[str]) -> None:
        """These runs have changed, and it is on disk."""
        watched = run_ids if self._lists else run_ids & self._callbacks.keys()
        if not watched:
            return
        if not self._dirty:
            # The first change after a quiet while is told at once; a stream of them is coalesced.
            wait = max(0.0, self._published + VIEW_SECONDS - self._clock.monotonic())
            asyncio.get_running_loop().call_later(wait, self._publish)
        self._dirty |= watched

    def hurry(self, run_id: str) -> None:
        """What has happened to this run is worth telling at once."""
        if run_id in self._callbacks:
            asyncio.get_running_loop().call_soon(self._publish)

    def close(self) -> None:
        """Tell what has changed so far, and nothing after that."""
        with contextlib.suppress(sqlite3.Error):
            self._publish()
        self._callbacks.clear()
        self._lists.clear()

    def _publish(self) -> None:
        dirty, self._dirty = self._dirty, set()
        if not dirty:
            return
        self._published = self._clock.monotonic()
        for follow in list(self._lists):
            follow(dirty)
        for run_id in dirty:
            callbacks = self._callbacks.get(run_id)
            view = self._look(run_id) if callbacks else None
            if view is not None and callbacks:
                for callback in list(callbacks):
                    callback(view)
