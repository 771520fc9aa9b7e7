"""Runs that can be claimed, by due time, then by age. The file stays the truth: a claim checks it again.

Runs that sleep, or wait for an event until some moment, are there too: their claim ends the sleep or the wait.

Due times stand in the file by the wall clock. Here they are kept by the monotonic one, from the moment they were read,
so that a wall clock that is set back holds no run; once the file has followed such a clock, they are read again.
"""

from __future__ import annotations

import heapq
import sqlite3
from typing import Final

from ..state import places
from ..state.transitions_claims import READY
from .clock import Clock

_CLAIMABLE: Final = f"""
    SELECT q.available_at, q.created_at, q.run_id FROM run_queue q JOIN runs r USING (run_id)
    WHERE {READY}
"""
_Entry = tuple[float, int, str]


class ReadyQueue:
    """A heap in memory, so that picking the next run does not scan those that wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[_Entry] = []
        self._queued: dict[str, tuple[int, _Entry]] = {}

    def load(self, connection: sqlite3.Connection) -> None:
        """Fill it anew from the file."""
        self._heap.clear()
        self._queued.clear()
        for row in connection.execute(_CLAIMABLE):
            self._push(*row)

    def refresh(self, connection: sqlite3.Connection, run_id: str) -> set[str]:
        """Take a run's present row into account, and those of its session, which its place may have gone to.

        Gives these others.
        """
        self._refresh(connection, run_id)
        mates = set(places.mates(connection, run_id))
        for mate in mates:
            self._refresh(connection, mate)
        return mates

    def _refresh(self, connection: sqlite3.Connection, run_id: str) -> None:
        row = connection.execute(f"{_CLAIMABLE} AND q.run_id = ?", (run_id,)).fetchone()
        if row is not None:
            self._push(*row)
        else:
            self._queued.pop(run_id, None)

    def _push(self, available_at: int, created_at: int, run_id: str) -> None:
        known = self._queued.get(run_id)
        if known is not None and known[0] == available_at:
            return
        due = self._clock.monotonic() + (available_at - self._clock.now()) / 1000
        entry = (due, created_at, run_id)
        self._queued[run_id] = (available_at, entry)
        heapq.heappush(self._heap, entry)

    def pop(self, skip: set[str]) -> str | None:
        """The next due run that is not in `skip` (those whose last runner still lives), or None."""
        now = self._clock.monotonic()
        aside: list[_Entry] = []
        found = None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._is_queued(entry):
                continue
            if entry[2] in skip:
                aside.append(entry)
                continue
            del self._queued[entry[2]]
            found = entry[2]
            break
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return found

    def next_due(self) -> float | None:
        """In how many seconds the earliest run is due (0 or less: now), or None."""
        while self._heap and not self._is_queued(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] - self._clock.monotonic() if self._heap else None

    def _is_queued(self, entry: _Entry) -> bool:
        known = self._queued.get(entry[2])
        return known is not None and known[1] == entry

    def __len__(self) -> int:
        return len(self._queued)
