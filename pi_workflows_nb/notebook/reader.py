"""Reading a state file from any thread: one short read transaction a call, everything fetched before it ends.

An unfinished SELECT would keep the writer from recycling its log, so no cursor ever leaves this module open. A
connection is made for each call: that costs two milliseconds, holds nothing between calls, and outlives no server.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.wire.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# Often enough for an interrupt within milliseconds, seldom enough to cost nothing.
_INSTRUCTIONS: Final = 100_000


class Reader:
    """Read-only access to one file.

    `live` tells whether a server of ours writes to it now; None lets the file itself tell.
    """

    def __init__(self, path: Path, live: Callable[[], bool | None] = lambda: None) -> None:
        self.path = path
        self._live = live

    def open(self) -> sqlite3.Connection:
        """A new read-only connection; the caller closes it. `StateFileError` when the file is not readable."""
        return open_read_only(self.path, live=self._live())

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection within one read transaction: all its statements see the file at one moment."""
        connection = self.open()
        try:
            with interruptible(connection):
                connection.execute("BEGIN")
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
        finally:
            connection.close()

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one query."""
        with self.snapshot() as connection:
            return connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> tuple[Any, ...] | None:
        """The first row of one query, if there is one."""
        rows = self.rows(sql, parameters)
        return rows[0] if rows else None


@contextmanager
def interruptible(connection: sqlite3.Connection) -> Iterator[None]:
    """Let Kernel → Interrupt stop a statement, and turn SQLite's complaints about a query into `QueryError`."""
    # The handler of a signal runs inside this call; what it raises ends the statement as "interrupted".
    connection.set_progress_handler(lambda: 0, _INSTRUCTIONS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error) == "interrupted":
            raise KeyboardInterrupt from None
        raise QueryError(f"the state file refused the query: {error}") from error
    except (sqlite3.Warning, sqlite3.ProgrammingError, sqlite3.DataError) as error:
        raise QueryError(f"this is not a query for the state file: {error}") from error
    finally:
        connection.set_progress_handler(None, 0)
