"""Which files are let in: a look at a path, and at what lies there, that changes nothing.

Nothing in here opens a database file other than through SQLite: closing any other descriptor of it would drop the POSIX
locks that SQLite holds on it in this process.
"""

from __future__ import annotations

import glob
import os
import sqlite3
import stat
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ..wire.errors import StateFileError
from . import shape

APPLICATION_ID: Final = 0x50495746
SCHEMA_NAME: Final = "pi-workflows-state"
SCHEMA_VERSION: Final = 1
APP: Final = "pi-workflows-nb"
BUSY_TIMEOUT_MS: Final = 5000
SMALLEST_BYTES: Final = 512  # SQLite's smallest page; it takes less for an empty file

# What may go away by itself or by a person's hand, as against a fault of a statement.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_known: dict[tuple[int, int], int] = {}  # (device, inode) of files whose shape was right under this schema version


def made_here(connection: sqlite3.Connection) -> bool:
    """Whether the file was made by this implementation, of whatever version."""
    row = connection.execute("SELECT app_version FROM schema_meta WHERE id = 1").fetchone()
    return row is not None and str(row[0]).startswith(APP)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Give the real path that a name leads to; the file need not exist."""
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        raise StateFileError(f"{os.fspath(path)!r} is no usable path ({error}): choose another") from error


def refuse_kinds(path: Path, *, links: bool = True) -> None:
    """`StateFileError` for what is no plain file with content, and, where it is to be written, for hard links."""
    try:
        status = path.stat()
    except OSError as error:
        raise StateFileError(
            f"{path} cannot be looked at ({error.strerror}): check its folder's permissions"
        ) from error
    if stat.S_ISDIR(status.st_mode):
        raise StateFileError(f"{path} is a folder: name a file in it, such as {path / 'state.sqlite'}")
    if not stat.S_ISREG(status.st_mode):
        raise StateFileError(f"{path} is a pipe, socket or device, not a file: choose another path")
    if status.st_size == 0:
        raise StateFileError(
            f"{path} is an empty file, which no server leaves behind: delete it or choose another path"
        )
    if status.st_size < SMALLEST_BYTES:
        raise StateFileError(
            f"{path} is too short for a SQLite file: choose another path, or restore a backup if it once was one"
        )
    if links and status.st_nlink > 1 and _links_of_others(path, status) > 1:
        raise StateFileError(
            f"{path} has {status.st_nlink} hard links, and a server under another name would not see this one:"
            " copy the file and use the copy, or remove the other links"
        )


def _links_of_others(path: Path, status: os.stat_result) -> int:
    """The hard links of a file less the name it was made under, which whoever made it may not have removed yet."""
    links = status.st_nlink
    for aside in path.parent.glob(f".{glob.escape(path.name)}.*.new"):
        try:
            if os.path.samestat(aside.lstat(), status):
                aside.unlink()
                links -= 1
        except FileNotFoundError:
            links -= 1
    return links


def uri_of(path: Path, parameters: str) -> str:
    """Give a path as SQLite's URI with parameters, whatever characters are in it."""
    return f"file:{quote(os.fspath(path))}?{parameters}"


def has_log(path: Path) -> bool:
    """Whether a write-ahead log lies beside a file: it is live, or its last writer died."""
    return os.path.lexists(f"{path}-wal")


def connect_reader(path: Path, *, live: bool) -> sqlite3.Connection:
    """Open a file for reading without leaving anything beside it when it is at rest."""
    # At rest, mode=ro would create -wal and -shm beside the file, and fail where it must not.
    mode = "mode=ro" if live or has_log(path) else "mode=ro&immutable=1"
    try:
        return sqlite3.connect(
            uri_of(path, mode), uri=True, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
    except sqlite3.OperationalError as error:
        raise StateFileError(f"{path} cannot be opened ({error}): check that you may read it and its folder") from error


def check(connection: sqlite3.Connection, path: Path) -> None:
    """`StateFileError` unless the file is a state file of the version and shape that this code knows."""
    try:
        _check_marks(connection, path)
        status = path.stat()
        key = status.st_dev, status.st_ino
        (schema_version,) = connection.execute("PRAGMA schema_version").fetchone()
        if _known.get(key) != schema_version:
            found = shape.difference(shape.shape_of(connection))
            if found is not None:
                raise StateFileError(
                    f"{path} has the marks of a state file but not its shape ({found}):"
                    " restore a backup, or choose another path"
                )
            _known[key] = schema_version
    except sqlite3.OperationalError as error:
        if not is_passing(error):
            raise StateFileError(f"{path} is damaged ({error}): restore a backup") from error
        if _lost_its_log(path):
            raise StateFileError(
                f"{path} cannot be read, since {path}-wal was deleted while a server writes to it; nothing is lost:"
                " stop the server and start it again, server.stop() and pw.start()"
            ) from error
        raise StateFileError(
            f"{path} cannot be read ({error}): check that you may write to its folder, or copy it together with its"
            " -wal file to where you may"
        ) from error
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StateFileError(
                f"{path} is no SQLite file: choose another path, or restore a backup if it once was one"
            ) from error
        raise StateFileError(f"{path} is damaged ({error}): restore a backup") from error
    except UnicodeDecodeError as error:
        raise StateFileError(f"{path} is damaged (a name in its schema is no text): restore a backup") from error


def _lost_its_log(path: Path) -> bool:
    """Whether there is an index of a log and no log, or the empty one that this reader has just made."""
    try:
        return os.path.lexists(f"{path}-shm") and (not has_log(path) or os.stat(f"{path}-wal").st_size == 0)
    except OSError:
        return False


def _check_marks(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StateFileError(f"{path} is a SQLite file of something else: choose another path")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StateFileError(
            f"{path} was written by a newer version (its schema is {version}, known here is {SCHEMA_VERSION}):"
            f" upgrade {APP}, or choose another path"
        )
    columns = {row[1] for row in connection.execute("PRAGMA table_info(schema_meta)")}
    row = None
    if {"schema_name", "schema_version"} <= columns:
        row = connection.execute("SELECT schema_name, schema_version FROM schema_meta").fetchone()
    if version != SCHEMA_VERSION or row != (SCHEMA_NAME, SCHEMA_VERSION):
        raise StateFileError(
            f"{path} has the mark of a state file but says it is {row!r} at version {version}, not"
            f" {(SCHEMA_NAME, SCHEMA_VERSION)!r}: restore a backup, or choose another path"
        )


def is_passing(error: sqlite3.Error) -> bool:
    """Whether the same call may succeed later: disk full, read-only, I/O error, busy."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return (code & 0xFF) in _PASSING  # the low byte of an extended code is its family
