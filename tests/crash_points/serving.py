"""A server that is killed at one commit: `python -m tests.crash_points.serving POINT DATABASE HOME OPTIONS`.

POINT is `before:7`, `after:7`, or `none`. Only commits that change something count, of any connection of the process,
from the making of the file on. What each is about is told, one line each, in `<DATABASE>.commits`.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from pi_workflows_nb.server.__main__ import main


class Killer:
    """Counts the commits of this process, and ends it at one of them."""

    def __init__(self, point: str, told: Path) -> None:
        self.side, _, number = point.partition(":")
        self.number = int(number or 0)
        self.seen = 0
        self._told = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def reach(self, side: str) -> None:
        """End the process where this is the point."""
        if side == self.side and self.seen == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, about: str) -> None:
        """Write down what the next commit is about, so that it stands there whatever comes."""
        self.seen += 1
        os.write(self._told, f"{self.seen} {about}\n".encode())


class Connection(sqlite3.Connection):
    """Passes all of its commits by the killer."""

    killer: Killer
    _changes = 0
    _events = 0

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql != "COMMIT" or self.total_changes == self._changes:
            return super().execute(sql, *parameters)
        self.killer.tell(self._about())
        self._changes = self.total_changes
        self.killer.reach("before")
        cursor = super().execute(sql, *parameters)
        self.killer.reach("after")
        return cursor

    def _about(self) -> str:
        found = super().execute("SELECT event_seq, event_type FROM events WHERE event_seq > ?", (self._events,))
        rows = found.fetchall()
        if not rows:
            return "-"
        self._events = max(row[0] for row in rows)
        return ",".join(row[1] for row in rows)


if __name__ == "__main__":
    point, database = sys.argv[1], Path(sys.argv[2])
    Connection.killer = Killer(point, database.with_name(database.name + ".commits"))
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Connection)  # type: ignore[assignment]
    sys.exit(main(sys.argv[2:]))
