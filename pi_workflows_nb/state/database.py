"""Opening the state file: to write, by the one server that owns it, or to read, by anybody.

A file that is not ours is refused before a byte of it changes, so each file is looked at through a read-only connection
first (`admission`). A new one gets its name when it is whole.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import secrets
import sqlite3
from contextlib import closing
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..wire import identities
from ..wire.errors import StateFileError, StateUnavailableError
from . import admission, filesystems, shape

_LONGEST_NAME: Final = 220
"""Bytes of a file's name, so that what lies beside it, such as `.NAME.….new`, still has one."""

_EVERYWHERE: Final = (f"busy_timeout = {admission.BUSY_TIMEOUT_MS}", "foreign_keys = ON", "trusted_schema = OFF")
_WRITER: Final = (
    *_EVERYWHERE,
    "synchronous = FULL",
    "cache_size = -64000",
    "journal_size_limit = 67108864",
    "wal_autocheckpoint = 0",  # a checkpoint in somebody's commit would stall a run; the server does it when idle
)
_READER: Final = (*_EVERYWHERE, "wal_autocheckpoint = 0", "query_only = ON")


class Database:
    """The writer of a state file: one for each process and file, used on the thread that opened it.

    `path` is the file's real path, `connection` its only writing connection (autocommit; use `transaction`).
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self._identity = _identity(path)
        self._log: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], now: int, *, adopt: bool = False) -> Self:
        """Open a state file, or make it where there is none. `now` in milliseconds since the epoch.

        A file that another implementation made is opened for writing with `adopt=True` alone. `StateFileError` says
        why a path is refused; a file that stands there is untouched then.
        """
        real = cls.look_at(path, adopt=adopt)
        if not os.path.lexists(real):
            _create(real, now)
            cls.look_at(real, adopt=adopt)
        return cls(real, _connect_writer(real))

    @staticmethod
    def look_at(path: str | os.PathLike[str], *, adopt: bool = False) -> Path:
        """Give the real path of a file that `open` would serve or make; nothing is changed, `StateFileError` as there.

        For those who put something beside the file before they open it.
        """
        if sqlite3.sqlite_version_info < (3, 37):
            raise StateFileError(
                f"this Python comes with SQLite {sqlite3.sqlite_version}; state files need 3.37 or newer:"
                " use another Python, such as one from python.org or conda"
            )
        real = admission.resolve(path)
        filesystem = filesystems.network_filesystem(real)
        if filesystem is not None:
            raise StateFileError(
                f"{real} lies on a network filesystem ({filesystem}), where SQLite cannot guard a file that is being"
                ' written: choose a path on a local disk, or pw.start(database="local")'
            )
        if not os.path.lexists(real):
            _refuse_new(real)
            return real
        admission.refuse_kinds(real)
        if not os.access(real, os.W_OK) or not os.access(real.parent, os.W_OK):
            raise StateFileError(f"{real} or its folder is read-only: make both writable, or only read the file")
        with closing(admission.connect_reader(real, live=False)) as looking:
            admission.check(looking, real)
            if not adopt and not admission.made_here(looking):
                raise StateFileError(
                    f"{real} was made by another implementation of this system: read it as it is,"
                    " or pass adopt=True to go on with it here"
                )
        return real

    def transaction(self) -> _Transaction:
        """A context that begins an immediate transaction, gives the connection, and commits; any error rolls back.

        `StateUnavailableError` when the file could not be written just now (disk full, read-only, busy, folder gone);
        nothing has changed then.
        """
        return _Transaction(self.connection)

    def in_place(self) -> bool:
        """Whether the file that is being written is still the one that its path names."""
        try:
            return _identity(self.path) == self._identity
        except OSError:
            return False

    def require_in_place(self) -> None:
        """`StateUnavailableError` while the file was moved, deleted or unmounted: what is written then may be lost."""
        try:
            found = _identity(self.path)
        except OSError:
            found = None
        if found != self._identity:
            what = "is not there any more" if found is None else "is another file now"
            raise StateUnavailableError(
                f"{self.path} {what} (moved, deleted or unmounted); nothing is written until it is back: put it back"
                " where it was, or stop this server and start one on another path"
            )

    def secure(self) -> None:
        """After a commit: see to it that what was committed has a name.

        Somebody may have deleted the log of the live file, taking it for a leftover. SQLite goes on in the nameless
        one, which is gone with this process; so from then on every commit is moved into the file at once.
        """
        try:
            found = _identity(self._log_path)
        except OSError:
            found = None
        if self._log is None:
            self._log = found
        elif found != self._log:
            self.checkpoint()

    @cached_property
    def _log_path(self) -> Path:
        return Path(f"{self.path}-wal")

    def checkpoint(self) -> tuple[int, int]:
        """Move what no reader needs any more from the log into the file, waiting for nobody.

        Gives the pages in the log and how many of them are moved. `StateUnavailableError` as `transaction`.
        """
        self.require_in_place()
        try:
            _, pages, moved = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.OperationalError as error:
            raise _unavailable(error) from error
        return pages, moved

    def close(self) -> None:
        """Close the connection; the last one to close moves the log into the file."""
        self.connection.close()


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if admission.is_passing(error):
                raise _unavailable(error) from error
            raise
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as failure:
                self._roll_back()
                if admission.is_passing(failure):
                    raise _unavailable(failure) from failure
                raise
            return
        self._roll_back()
        if isinstance(error, sqlite3.Error) and admission.is_passing(error):
            raise _unavailable(error) from error

    def _roll_back(self) -> None:
        # A full disk or an I/O error may have rolled back already.
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as failure:
                if self._connection.in_transaction:
                    raise _unavailable(failure) from failure


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def open_read_only(path: str | os.PathLike[str], *, live: bool | None = None) -> sqlite3.Connection:
    """Open a state file of any implementation for reading, by a connection that the caller closes.

    Any thread may use it, one at a time.
    `live` says whether a server may be writing it now; None lets the file tell (a log beside it). A file at rest is
    opened so that nothing is created beside it. `StateFileError` when it is no state file or cannot be read.
    """
    real = admission.resolve(path)
    if not os.path.lexists(real):
        raise StateFileError(f"there is no state file {real}: check the path, or start a server, which makes it")
    admission.refuse_kinds(real, links=False)
    connection = admission.connect_reader(real, live=bool(live))
    try:
        for pragma in _READER:
            connection.execute(f"PRAGMA {pragma}")
        admission.check(connection, real)
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def schema_text() -> str:
    """The DDL of a new state file."""
    return shape.SCHEMA_SQL.read_text(encoding="utf-8")


@cache
def schema_digest() -> bytes:
    """The SHA-256 that a file made here carries of its DDL."""
    return identities.sha256(schema_text().encode())


def _refuse_new(path: Path) -> None:
    """`StateFileError` where no file can be made."""
    try:
        leftovers = [leftover for leftover in (f"{path}-wal", f"{path}-journal") if os.path.lexists(leftover)]
        if len(os.fsencode(path.name)) > _LONGEST_NAME:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise StateFileError(f"{path} cannot be made ({said}): choose another path") from error
    if leftovers:
        raise StateFileError(
            f"{path} does not exist but {leftovers[0]} does, left over from a file that was moved or deleted:"
            " put it back beside its file, or delete it"
        )
    if not folder.is_dir():
        raise StateFileError(f"{path} cannot be made ({folder} is not a folder): choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StateFileError(f"{path} cannot be made ({folder} is read-only): make it writable or choose another path")


def _create(path: Path, now: int) -> None:
    """Make a file aside and give it its name when it is whole, so that no crash leaves half of one under the name."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        _make_folder(path.parent)
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            _write_schema(aside, now)
            _name(aside, path)
        finally:
            for name in (aside, f"{aside}-wal", f"{aside}-shm"):
                Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise StateFileError(
            f"{path} cannot be made ({error.strerror}): choose another path, or make its folder writable"
        ) from error
    except sqlite3.OperationalError as error:
        raise StateFileError(f"{path} cannot be made ({error}): free some space or choose another path") from error


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def _write_schema(path: Path, now: int) -> None:
    connection = sqlite3.connect(admission.uri_of(path, "mode=rw"), uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(
            f"BEGIN EXCLUSIVE;{schema_text()};PRAGMA application_id = {admission.APPLICATION_ID};"
            f"PRAGMA user_version = {admission.SCHEMA_VERSION};"
        )
        connection.execute(
            "INSERT INTO schema_meta(id, schema_name, schema_version, schema_digest, app_version, created_at,"
            " updated_at) VALUES (1, ?, ?, ?, ?, ?, ?)",
            (
                admission.SCHEMA_NAME,
                admission.SCHEMA_VERSION,
                schema_digest(),
                f"{admission.APP} {_app_version()}",
                now,
                now,
            ),
        )
        connection.execute("COMMIT")
    finally:
        connection.close()


def _name(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        return  # another process made it in the same moment; theirs is as good
    except OSError:
        # No hard links on this filesystem: a rename is as atomic, but would replace a file of another process.
        if not os.path.lexists(path):
            aside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _app_version() -> str:
    try:
        return importlib.metadata.version(admission.APP)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _connect_writer(path: Path) -> sqlite3.Connection:
    connection: sqlite3.Connection | None = None
    try:
        path.chmod(0o600)
        connection = sqlite3.connect(
            admission.uri_of(path, "mode=rw"),
            uri=True,
            timeout=admission.BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            cached_statements=512,
            check_same_thread=True,
        )
        for pragma in _WRITER:
            connection.execute(f"PRAGMA {pragma}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StateFileError(
                f"{path} cannot use a write-ahead log here (SQLite offers {mode}): choose a local disk"
            )
    except (OSError, sqlite3.Error, StateFileError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, StateFileError):
            raise
        raise StateFileError(f"{path} cannot be opened for writing ({error}): see who else uses it") from error
    return connection


def _unavailable(error: sqlite3.Error) -> StateUnavailableError:
    return StateUnavailableError(
        f"the state file could not be written ({error}); nothing was changed, and the same call may succeed once that"
        " is mended"
    )
