"""SQL on a state file by hand: query results as typed frames, and a read-only `sqlite_utils.Database`."""

from __future__ import annotations

import re
import sqlite3
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pandas as pd

from pi_workflows_nb.state import admission

from .arrays import TEXT, TIME
from .columns import MISSING
from .frame_definitions import FRAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlite_utils import Database

    from .reader import Reader

_VIEW_NAME: Final = re.compile(r"\b([a-z_]+)_v\b", re.IGNORECASE)
_DIGEST_NAMES: Final = ("_hash", "_digest", "_fingerprint")
_INSTRUCTIONS: Final = 100_000


def query(reader: Reader, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> pd.DataFrame:
    """The result of one statement.

    Whole numbers become Int64, others Float64, text string; numbers in a column named `…_at` become times, 32-byte
    digests hex text. `QueryError` with SQLite's complaint, also for a statement that would write.
    """
    with reader.snapshot() as connection:
        _add_views(connection, {name.lower() for name in _VIEW_NAME.findall(sql)})
        cursor = connection.execute(sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchall()
    columns = [[row[position] for row in rows] for position in range(len(names))]
    result = pd.DataFrame(dict(enumerate(map(_typed, names, columns))), copy=False)
    result.columns = pd.Index(_distinct(names), dtype=TEXT)
    result.attrs["source"] = sql
    return result


def database(reader: Reader) -> Database:
    """A `sqlite_utils.Database` on the file with the views `runs_v`, `steps_v`, …; it cannot write."""
    from sqlite_utils import Database

    path = admission.resolve(reader.path)
    with closing(reader.open()):
        pass  # whatever is wrong with the file was said by now
    mode = "mode=ro" if admission.has_log(path) else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        admission.uri_of(path, mode),
        uri=True,
        timeout=admission.BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        factory=EagerConnection,
    )
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.set_progress_handler(lambda: 0, _INSTRUCTIONS)
    _add_views(connection, set(FRAMES))
    return Database(connection, recursive_triggers=False, execute_plugins=False)


def _add_views(connection: sqlite3.Connection, names: set[str]) -> None:
    """Views of this connection alone; a connection that only reads lets them be made before it is told so."""
    for name in names & FRAMES.keys():
        connection.execute("PRAGMA query_only = OFF")
        connection.execute(FRAMES[name].view)
    connection.execute("PRAGMA query_only = ON")


class EagerCursor(sqlite3.Cursor):
    """Has all rows as soon as a statement is executed: an unfinished one would pin the log of a live file."""

    _rows: deque[Any]

    def execute(self, *arguments: Any) -> EagerCursor:
        """As `sqlite3.Cursor.execute`."""
        try:
            super().execute(*arguments)
            self._rows = deque(super().fetchall() if self.description is not None else ())
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise KeyboardInterrupt from None
            raise
        return self

    def fetchone(self) -> Any:
        """The next row, or None."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        """The next rows, `size` at most."""
        return [self._rows.popleft() for _ in range(min(1 if size is None else size, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        rows, self._rows = list(self._rows), deque()
        return rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._rows:
            raise StopIteration
        return self._rows.popleft()


class EagerConnection(sqlite3.Connection):
    """Gives eager cursors."""

    def cursor(self, factory: Any = EagerCursor) -> Any:
        """A cursor that fetches at once, unless another class is asked for."""
        return super().cursor(factory)

    def execute(self, *arguments: Any) -> Any:
        """As `sqlite3.Connection.execute`, which makes a cursor of its own kind."""
        return self.cursor().execute(*arguments)


def _typed(name: str, values: list[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    if name.endswith("_at") and kinds <= {int}:
        moments = np.array([MISSING if value is None else value for value in values], dtype=np.int64)
        return pd.array(moments.view("M8[ms]"), dtype=TIME)
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    if kinds and kinds <= {int, float}:
        return pd.array([pd.NA if value is None else float(value) for value in values], dtype="Float64")
    if kinds == {bytes} and name.endswith(_DIGEST_NAMES):
        return pd.array([None if value is None else value.hex() for value in values], dtype=TEXT)
    if kinds == {str}:
        return pd.array(values, dtype=TEXT)
    mixed = np.empty(len(values), object)
    mixed[:] = [pd.NA if value is None else value for value in values]
    return mixed


def _distinct(names: list[str]) -> list[str]:
    """SQL lets two columns have one name; a frame that is to be asked by name does not."""
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return distinct
