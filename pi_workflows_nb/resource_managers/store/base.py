"""What every operation of a store goes through: the project that it sees, one transaction, one clock."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ...state import runs
from ...state.database import Database, open_read_only
from ...wire import identities
from ...wire.errors import ProjectNotRegisteredError, ReadOnlyStoreError


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class StoreBase:
    """A state file as one project sees it, or, for reading only, as all of them do."""

    def __init__(
        self,
        database: Database | sqlite3.Connection,
        project: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], int] = _wall_clock,
    ) -> None:
        """Share an open file: to write, or (a connection of `open_read_only`) to read.

        `project` is a folder, which a store that writes registers; None stands for all projects.
        """
        self._database = database if isinstance(database, Database) else None
        self._connection = database.connection if isinstance(database, Database) else database
        self._owned = False
        self._clock = clock
        self.project_id: str | None = None
        if project is not None:
            path = identities.canonical_path(project)
            self.project_id = identities.project_id(path)
            if self._database is not None:
                with self._transaction() as connection:
                    runs.register_project(connection, path, clock())

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        project: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        clock: Callable[[], int] = _wall_clock,
    ) -> Self:
        """Open a state file, which is made where there is none unless it is to be read only; `close` closes it.

        `StateFileError` says why a file is refused.
        """
        database = open_read_only(path) if read_only else Database.open(path, clock())
        try:
            store = cls(database, project, clock=clock)
        except BaseException:
            database.close()
            raise
        store._owned = True
        return store

    def close(self) -> None:
        """Close the file, if this store opened it."""
        if self._owned:
            (self._database or self._connection).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _project(self) -> str:
        if self.project_id is None:
            raise ProjectNotRegisteredError(
                "project not registered: this store is of all projects, and only lists; open one with a project"
            )
        return self.project_id

    def _writing(self) -> str:
        if self._database is None:
            raise ReadOnlyStoreError("this store was opened for reading; nothing was changed")
        return self._project()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._database is not None
        self._database.require_in_place()
        with self._database.transaction() as connection:
            yield connection
        self._database.secure()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")
