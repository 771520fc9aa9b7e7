"""Deleting the blobs that nothing refers to, a bounded number at a time, beside a server that goes on writing.

No column that refers to a blob is indexed, so whether one is dead cannot be asked in each transaction. The dead are
found once, by a reader, in one snapshot (`Dead`). A blob that was dead then can come alive in one way only: somebody
stores the same bytes again. The writer notes every blob that is stored from before the snapshot on (`watch`), and
spares those.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Final

from . import admission

MOST_BLOBS: Final = 500
MOST_BYTES: Final = 16 << 20
_FIND: Final = """
    INSERT INTO temp.dead(blob_hash, byte_length)
    SELECT blob_hash, byte_length FROM main.blobs
    WHERE blob_hash NOT IN (SELECT blob_hash FROM temp.referred)
"""
_NAMED_SOURCES: Final = """
    SELECT DISTINCT b.content FROM main.blobs b
    WHERE b.blob_hash IN (SELECT launch_options_hash FROM main.runs) AND b.media_type = 'application/json'
"""


def references(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Every table and column that refers to blobs, as the schema of the file says."""
    tables = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall()
    return [
        (table, column)
        for (table,) in tables
        for _, _, parent, column, *_ in connection.execute(f'PRAGMA main.foreign_key_list("{table}")')
        if parent == "blobs"
    ]


def watch(connection: sqlite3.Connection) -> None:
    """Note from now on which blobs are stored over this writing connection; outside of a transaction."""
    connection.execute("CREATE TEMP TABLE stored_again(blob_hash BLOB PRIMARY KEY) WITHOUT ROWID")
    # BEFORE: so that it sees the bytes that stand already, too, which insert nothing.
    connection.execute(
        "CREATE TEMP TRIGGER note_stored BEFORE INSERT ON main.blobs BEGIN"
        " INSERT OR IGNORE INTO stored_again VALUES (new.blob_hash); END"
    )


def unwatch(connection: sqlite3.Connection) -> None:
    """Note no more."""
    connection.execute("DROP TRIGGER IF EXISTS temp.note_stored")
    connection.execute("DROP TABLE IF EXISTS temp.stored_again")


class Dead:
    """The blobs of a file that nothing refers to, as a reader found them; `close` at the end.

    The list lies in a temporary table, on disk when it is long. Any thread may use it, one at a time.
    """

    def __init__(self, path: Path) -> None:
        self._connection = admission.connect_reader(path, live=True)
        try:
            self._find()
        except BaseException:
            self._connection.close()
            raise

    def _find(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TEMP TABLE referred(blob_hash BLOB PRIMARY KEY) WITHOUT ROWID")
        connection.execute("CREATE TEMP TABLE dead(position INTEGER PRIMARY KEY, blob_hash BLOB, byte_length INTEGER)")
        connection.execute("BEGIN")
        for table, column in references(connection):
            connection.execute(
                f'INSERT OR IGNORE INTO temp.referred SELECT "{column}" FROM main."{table}"'
                f' WHERE "{column}" IS NOT NULL'
            )
        # The launch options of a run name its source by the digest, which is no column.
        sources = (_source_of(content) for (content,) in connection.execute(_NAMED_SOURCES))
        connection.executemany(
            "INSERT OR IGNORE INTO temp.referred VALUES (?)", [(digest,) for digest in sources if digest]
        )
        connection.execute(_FIND)
        connection.execute("COMMIT")

    def after(self, position: int) -> tuple[int, list[bytes]]:
        """The next of them behind a position, and the position of the last; none at the end."""
        digests: list[bytes] = []
        room = MOST_BYTES
        for found, digest, size in self._connection.execute(
            "SELECT position, blob_hash, byte_length FROM temp.dead WHERE position > ? ORDER BY position LIMIT ?",
            (position, MOST_BLOBS),
        ).fetchall():
            if digests and size > room:
                break
            room -= size
            position = found
            digests.append(digest)
        return position, digests

    def close(self) -> None:
        """Forget the list."""
        self._connection.close()


def delete(connection: sqlite3.Connection, digests: list[bytes], spared: set[bytes]) -> tuple[int, int]:
    """Delete dead blobs, within a transaction of the watched connection, which does not check references.

    Those that were stored again, and those in `spared`, stay. Gives how many went, and their bytes.
    """
    count = size = 0
    for digest in digests:
        if (
            digest in spared
            or connection.execute("SELECT 1 FROM temp.stored_again WHERE blob_hash = ?", (digest,)).fetchone()
        ):
            continue
        row = connection.execute(
            "DELETE FROM main.blobs WHERE blob_hash = ? RETURNING byte_length", (digest,)
        ).fetchone()
        if row is not None:
            count, size = count + 1, size + row[0]
    return count, size


def _source_of(content: bytes) -> bytes | None:
    try:
        return bytes.fromhex(json.loads(content)["source"]["sha256"])
    except (LookupError, TypeError, ValueError):
        return None  # started by another implementation, which names no stored source
