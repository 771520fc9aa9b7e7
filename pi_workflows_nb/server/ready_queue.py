"""Runs that can be claimed, by due time, then by age. The file stays the truth: a claim checks it again."""

from __future__ import annotations

import heapq
import sqlite3
from typing import Final

_CLAIMABLE: Final = """
    SELECT q.available_at, q.created_at, q.run_id FROM run_queue q JOIN runs r USING (run_id)
    WHERE q.status IN ('queued', 'parked', 'starting', 'running') AND r.status IN ('queued', 'running') AND r.paused = 0
    AND (q.error_code IS NULL OR q.error_code NOT IN ('workflowSourceChanged', 'runnerNoProgress'))
"""


class ReadyQueue:
    """A heap in memory, so that picking the next run does not scan those that wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str]] = []
        self._queued: dict[str, tuple[int, int, str]] = {}

    def load(self, connection: sqlite3.Connection) -> None:
        """Fill it from the file."""
        for row in connection.execute(_CLAIMABLE):
            self._push(tuple(row))

    def refresh(self, connection: sqlite3.Connection, run_id: str) -> None:
        """Take a run's present row into account."""
        row = connection.execute(f"{_CLAIMABLE} AND q.run_id = ?", (run_id,)).fetchone()
        if row is not None:
            self._push(tuple(row))
        else:
            self._queued.pop(run_id, None)

    def _push(self, entry: tuple[int, int, str]) -> None:
        if self._queued.get(entry[2]) != entry:
            self._queued[entry[2]] = entry
            heapq.heappush(self._heap, entry)

    def pop(self, now: int, skip: set[str]) -> str | None:
        """The next due run that is not in `skip` (those whose last runner still lives), or None."""
        aside: list[tuple[int, int, str]] = []
        found = None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._queued.get(entry[2]) != entry:
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

    def next_due(self) -> int | None:
        """When the earliest run is due (ms), or None."""
        while self._heap and self._queued.get(self._heap[0][2]) != self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._queued)
