"""Content-addressed values: a row per value, its key the SHA-256 of its bytes.

A row is shared by everyone who wrote the same bytes. The key does not know the media type, so bytes that are both a
text and JSON (`{}`) meet in one row: text is content with a row of either type, JSON makes the row JSON.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Raw

from ..wire import canonical_json, identities
from ..wire.errors import BlobConflictError, NotFoundError, StateUnavailableError
from ..wire.runner_messages import ContentRef, Value, fits_inline

JSON: Final = "application/json"
TEXT: Final = "text/plain"

INSERT_BLOBS: Final = (
    "INSERT INTO blobs(blob_hash, media_type, byte_length, content, created_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT(blob_hash) DO UPDATE SET media_type = excluded.media_type"
    " WHERE excluded.media_type = 'application/json' AND blobs.media_type <> excluded.media_type"
)
"""For rows of `blob_row`, one or many. A row that stands already is adopted without a look at its content."""

_INSERT: Final = (
    "INSERT INTO blobs(blob_hash, media_type, byte_length, content, created_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT(blob_hash) DO NOTHING"
)

_INSERT_EMPTY: Final = (
    "INSERT INTO blobs(blob_hash, media_type, byte_length, content, created_at) VALUES (?, ?, ?, zeroblob(?), ?)"
    " ON CONFLICT(blob_hash) DO NOTHING"
)


@dataclass(frozen=True)
class LargeValue:
    """Canonical JSON that is nowhere held as a whole: its digest and size, and its bytes in parts, again at each call.

    Whoever makes one has checked that the parts have that digest.
    """

    digest: bytes
    size: int
    parts: Callable[[], Iterable[bytes]]


def digest_of(canonical: bytes | LargeValue) -> bytes:
    """The digest under which a value is stored."""
    return canonical.digest if isinstance(canonical, LargeValue) else identities.sha256(canonical)


def blob_row(content: bytes, media_type: str, now: int) -> tuple[bytes, str, int, bytes, int]:
    """Give the row of a value for `INSERT_BLOBS`; its first member is the digest. `now` in milliseconds."""
    return identities.sha256(content), media_type, len(content), content, now


def put_json(connection: sqlite3.Connection, value: Any, now: int) -> bytes:
    """Store a JSON value (None is JSON null) and give its digest; `NotJsonError` as `canonical_json.encode`."""
    return _put(connection, canonical_json.encode(value), JSON, now)


def put_json_bytes(connection: sqlite3.Connection, canonical: bytes | LargeValue, now: int) -> bytes:
    """Store bytes that are canonical JSON already and give their digest."""
    if isinstance(canonical, LargeValue):
        return _put_large(connection, canonical, now)
    return _put(connection, canonical, JSON, now)


def put_text(connection: sqlite3.Connection, text: str, now: int) -> bytes:
    """Store a text as UTF-8, lone surrogates as U+FFFD, and give its digest."""
    return _put(connection, identities.utf8(text), TEXT, now)


def _put(connection: sqlite3.Connection, content: bytes, media_type: str, now: int) -> bytes:
    digest = identities.sha256(content)
    if connection.execute(_INSERT, (digest, media_type, len(content), content, now)).rowcount == 1:
        return digest
    same, stands_as = connection.execute(
        "SELECT byte_length = ? AND content = ?, media_type FROM blobs WHERE blob_hash = ?",
        (len(content), content, digest),
    ).fetchone()
    _adopt(connection, digest, same=same, media_type=media_type, stands_as=stands_as)
    return digest


def _put_large(connection: sqlite3.Connection, large: LargeValue, now: int) -> bytes:
    cursor = connection.execute(_INSERT_EMPTY, (large.digest, JSON, large.size, large.size, now))
    if cursor.rowcount != 1:
        same, stands_as = connection.execute(
            "SELECT byte_length = ?, media_type FROM blobs WHERE blob_hash = ?", (large.size, large.digest)
        ).fetchone()
        _adopt(connection, large.digest, same=same, media_type=JSON, stands_as=stands_as)
        return large.digest
    assert cursor.lastrowid is not None
    with connection.blobopen("blobs", "content", cursor.lastrowid) as content:
        for part in large.parts():
            content.write(part)
        if content.tell() != large.size:
            raise StateUnavailableError("a large value ended before its length; send it again")
    return large.digest


def _adopt(connection: sqlite3.Connection, digest: bytes, *, same: bool, media_type: str, stands_as: str) -> None:
    if not same:
        raise BlobConflictError(
            f"the blob {digest.hex()} does not hold the bytes of its digest: the state file is damaged;"
            " server.verify() says where, restore a backup"
        )
    if media_type == JSON and stands_as != JSON:
        connection.execute("UPDATE blobs SET media_type = ? WHERE blob_hash = ?", (JSON, digest))


def value_of(connection: sqlite3.Connection, digest: bytes, inline_bytes: int) -> Value:
    """A stored JSON value for a peer: inline up to `inline_bytes`, else by its digest, and then not read."""
    row = connection.execute(
        "SELECT byte_length, media_type, CASE WHEN byte_length <= ? THEN content END FROM blobs WHERE blob_hash = ?",
        (inline_bytes, digest),
    ).fetchone()
    return value(digest, *row)


def value(digest: bytes, size: int, media_type: str, content: bytes | None) -> Value:
    """What `value_of` gives, from a row that was read already; without `content` it is a reference."""
    if content is None or not fits_inline(content, size):
        return Value(content=ContentRef(bytes=size, media_type=media_type, sha256=digest.hex()))
    return Value(inline=Raw(content))


def read_json(connection: sqlite3.Connection, digest: bytes) -> Any:
    """Give a stored JSON value. `NotFoundError` without such a blob, `BlobConflictError` when it is a text."""
    return canonical_json.decode(read_json_bytes(connection, digest))


def read_json_bytes(connection: sqlite3.Connection, digest: bytes) -> bytes:
    """Give the canonical bytes of a stored JSON value; errors as `read_json`."""
    media_type, content = _read(connection, digest)
    if media_type != JSON:
        raise BlobConflictError(f"the blob {digest.hex()} is {media_type}, not JSON")
    return content


def read_text(connection: sqlite3.Connection, digest: bytes) -> str:
    """Give the text of a blob, whichever media type it stands under; `NotFoundError` without such a blob."""
    return _read(connection, digest)[1].decode("utf-8", "replace")


def _read(connection: sqlite3.Connection, digest: bytes) -> tuple[str, bytes]:
    row = connection.execute("SELECT media_type, content FROM blobs WHERE blob_hash = ?", (digest,)).fetchone()
    if row is None:
        raise NotFoundError(f"no blob {digest.hex()} in this state file")
    return row[0], row[1]


def read_part(connection: sqlite3.Connection, digest: bytes, offset: int, size: int) -> bytes:
    """Give up to `size` bytes of a blob from `offset`, without reading the whole; `NotFoundError` without such a blob.

    Past the end there are none.
    """
    row = connection.execute("SELECT rowid, byte_length FROM blobs WHERE blob_hash = ?", (digest,)).fetchone()
    if row is None:
        raise NotFoundError(f"no blob {digest.hex()} in this state file")
    with connection.blobopen("blobs", "content", row[0], readonly=True) as content:
        content.seek(min(offset, row[1]))
        return content.read(size)
