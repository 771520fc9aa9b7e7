"""Values too large for a frame: received in parts into a file, given out in parts, never decoded here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import sqlite3
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET, Raw

from ..state import blobs
from ..state.blobs import LargeValue
from ..wire import canonical_json, identities
from ..wire.decoding import of_kind
from ..wire.errors import ProtocolError, StateUnavailableError
from ..wire.runner_messages import PART_BYTES, ContentRead, ContentRef, ContentWrite, Value, fits_inline
from .committer import Transaction

if TYPE_CHECKING:
    from hashlib import _Hash

OFFERED_BYTES: Final = 768 << 10
"""What is given inline: a part in base64 must be, whatever the limit of the other direction."""

MAX_UNDER_WAY: Final = 16
READ_SECONDS: Final = 60.0
"""How long a peer that reads a value in parts may take from one part to the next."""
_being_read: Final[dict[str, float]] = {}
_open: Final[weakref.WeakSet[Transfers]] = weakref.WeakSet()
Prepared: TypeAlias = tuple[bytes, bytes] | ContentRef | None


@dataclass(slots=True)
class _Arriving:
    path: Path
    have: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)


class Transfers:
    """The transfers of one peer. `folder` holds the files of parts; `close` removes what was not used."""

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder = folder
        self._peer = peer
        self._received: dict[str, Path] = {}
        self._wanted: Counter[str] = Counter()
        self._under_way: dict[str, _Arriving] = {}
        _open.add(self)

    def write(self, part: ContentWrite) -> None:
        """Take one part; the last one must complete the promised length and digest."""
        if part.sha256 in self._received:
            self._wanted[part.sha256] += part.offset + len(part.base64) // 4 * 3 >= part.bytes
            return
        arriving = self._under_way.get(part.sha256) or _Arriving(self._folder / f"{self._peer}-{part.sha256}")
        try:
            data = base64.b64decode(part.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"a part of a transfer is not base64: {error}") from None
        if len(data) > PART_BYTES or part.offset != arriving.have or arriving.have + len(data) > part.bytes:
            raise ProtocolError("a part of a transfer is too long or out of order")
        if part.sha256 not in self._under_way and len(self._under_way) >= MAX_UNDER_WAY:
            raise ProtocolError(f"more than {MAX_UNDER_WAY} transfers at a time")
        try:
            self._append(arriving, data)
        except OSError as error:
            raise StateUnavailableError(
                f"a part of a large value could not be stored in {self._folder} ({error.strerror})"
            ) from error
        if arriving.have < part.bytes:
            self._under_way[part.sha256] = arriving
            return
        self._under_way.pop(part.sha256, None)
        if arriving.digest.hexdigest() != part.sha256:
            arriving.path.unlink(missing_ok=True)
            raise ProtocolError("a transferred value does not have the digest that was promised")
        self._received[part.sha256] = arriving.path
        self._wanted[part.sha256] = 1

    def _append(self, arriving: _Arriving, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(arriving.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A part that was cut short by a full disk is written again as a whole.
            os.ftruncate(descriptor, arriving.have)
            os.lseek(descriptor, arriving.have, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)
        arriving.digest.update(data)
        arriving.have += len(data)

    def prepared(self, value: Value | None) -> Prepared:
        """A value of the peer, checked before any transaction: (digest, canonical bytes), or what was transferred."""
        if value is None:
            return None
        if value.content is not UNSET:
            if value.inline is not UNSET:
                raise ProtocolError("a value is either inline or a reference, not both")
            if value.content.sha256 not in self._received:
                raise ProtocolError("a value was referenced before it was transferred")
            return value.content
        data = inline(value)
        return identities.sha256(data), data

    def stored(self, prepared: Prepared, transaction: Transaction) -> tuple[bytes, bytes] | bytes | None:
        """What the hot path stores: (digest, canonical bytes), or the digest of what was transferred, stored now."""
        if isinstance(prepared, ContentRef):
            return blobs.put_json_bytes(transaction.sql(), self._large(prepared), transaction.now)
        return prepared

    def put(self, value: Value | None, transaction: Transaction) -> bytes | None:
        """Store a value of the peer and give its digest."""
        return None if value is None else blobs.put_json_bytes(transaction.sql(), self.given(value), transaction.now)

    def given(self, value: Value) -> bytes | LargeValue:
        """A value of the peer, whichever way it came: canonical bytes, or what was transferred."""
        prepared = self.prepared(value)
        if isinstance(prepared, tuple):
            return prepared[1]
        assert prepared is not None
        return self._large(prepared)

    def given_in_payload(self, value: dict[str, Any]) -> bytes | LargeValue:
        """A client's value, `{"inline": value}` or `{"content": reference}`: canonical bytes, or what was transferred.

        The bytes of a transfer were checked by length and digest alone.
        """
        if "content" in value:
            return self._large(of_kind(ContentRef, value["content"]))
        data = value["inline"]
        return bytes(data) if isinstance(data, Raw) else canonical_json.encode(data)

    def bytes_of_payload(self, value: dict[str, Any]) -> bytes:
        """The canonical bytes of a client's value that must be looked into here."""
        found = self.given_in_payload(value)
        return found if isinstance(found, bytes) else b"".join(found.parts())

    def _large(self, content: ContentRef) -> LargeValue:
        path = self._received.get(content.sha256)
        if path is None:
            raise ProtocolError("a value was referenced before it was transferred")
        return LargeValue(bytes.fromhex(content.sha256), content.bytes, _parts_of(path))

    def release(self, value: Value | None) -> None:
        """A value of the peer is stored for good: its file goes, and the peer may go on naming it."""
        if value is not None and value.content is not UNSET and value.content.sha256 in self._received:
            self._received[value.content.sha256].unlink(missing_ok=True)

    def drop(self, value: dict[str, Any]) -> None:
        """A client's value was used as often as it was sent: its file goes, and is sent again if need be."""
        digest = value.get("content", {}).get("sha256")
        if digest not in self._received:
            return
        self._wanted[digest] -= 1
        if self._wanted[digest] <= 0:
            self._received.pop(digest).unlink(missing_ok=True)

    def digests(self) -> set[bytes]:
        """What the peer has sent, or is sending: it may name any of it without sending it again."""
        return {bytes.fromhex(digest) for digest in (*self._received, *self._under_way)}

    def close(self) -> None:
        """Remove the files."""
        for path in [*self._received.values(), *(arriving.path for arriving in self._under_way.values())]:
            path.unlink(missing_ok=True)
        self._received.clear()
        self._under_way.clear()


def held() -> set[bytes]:
    """The digests of all values that are on their way through this process: a sweep spares them."""
    sent = {digest for transfers in list(_open) for digest in transfers.digests()}
    now = time.monotonic()
    for digest in [digest for digest, until in _being_read.items() if until < now]:
        del _being_read[digest]
    return sent | {bytes.fromhex(digest) for digest in _being_read}


def _parts_of(path: Path) -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        try:
            with path.open("rb", buffering=0) as file:
                while part := file.read(PART_BYTES):
                    yield part
        except OSError as error:
            raise StateUnavailableError(f"a large value cannot be read back ({error}); send it again") from error

    return parts


def offered(stored: bytes) -> Value:
    """A value for a peer: inline, or, when it is large, by the digest under which it is stored."""
    if fits_inline(stored, OFFERED_BYTES):
        return Value(inline=Raw(stored))
    return Value(content=ContentRef(bytes=len(stored), media_type=blobs.JSON, sha256=identities.sha256_hex(stored)))


def read(wish: ContentRead, connection: sqlite3.Connection) -> bytes:
    """The answer to `content.read`: a part of a stored blob. `NotFoundError` without such a blob."""
    return part_of(bytes_of(wish, connection))


def bytes_of(wish: ContentRead, connection: sqlite3.Connection) -> bytes:
    """The part of a stored blob that a peer asks for; the blob is held until it has asked for the rest."""
    part = blobs.read_part(connection, bytes.fromhex(wish.sha256), wish.offset, PART_BYTES)
    if len(part) == PART_BYTES:
        _being_read[wish.sha256] = time.monotonic() + READ_SECONDS
    else:
        _being_read.pop(wish.sha256, None)
    return part


def part_of(data: bytes) -> bytes:
    """A part of a value, as an answer gives it."""
    return b'{"base64":"' + base64.b64encode(data) + b'"}'


def inline(value: Value) -> bytes:
    """The bytes of an inline value, which must be canonical: they become a blob under their own digest."""
    if not isinstance(value.inline, Raw):
        raise ProtocolError("a value holds neither bytes nor a reference")
    data = bytes(value.inline)
    canonical_json.check(data)
    return data
