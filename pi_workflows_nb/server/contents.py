"""Values too large for a frame: received in parts into a file, given out in parts, never decoded here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from ..state import blobs
from ..wire import canonical_json, identities
from ..wire.errors import ProtocolError, StateUnavailableError
from ..wire.runner_messages import PART_BYTES, ContentRead, ContentRef, ContentWrite, Value
from .committer import Transaction

OFFERED_BYTES: Final = 768 << 10
"""What is given inline: a part in base64 must be, whatever the limit of the other direction."""

Prepared: TypeAlias = tuple[bytes, bytes] | ContentRef | None


class Transfers:
    """The transfers of one peer. `folder` holds the files of parts; `close` removes what was not used."""

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder = folder
        self._peer = peer
        self._received: dict[str, Path] = {}
        self._under_way: dict[str, tuple[Path, int]] = {}
        self._offered: dict[str, bytes] = {}

    def write(self, part: ContentWrite) -> None:
        """Take one part; the last one must complete the promised length and digest."""
        if part.sha256 in self._received:
            return
        if len(part.sha256) != 64 or not part.sha256.isalnum():
            raise ProtocolError("a transfer's digest is 64 hex digits")
        path, have = self._under_way.get(part.sha256, (self._folder / f"{self._peer}-{part.sha256}", 0))
        try:
            data = base64.b64decode(part.base64, validate=True)
        except binascii.Error as error:
            raise ProtocolError(f"a part of a transfer is not base64: {error}") from None
        if len(data) > PART_BYTES or part.offset != have or have + len(data) > part.bytes:
            raise ProtocolError("a part of a transfer is too long or out of order")
        try:
            self._append(path, have, data)
            have += len(data)
            complete = have == part.bytes
            digest = _digest_of(path) if complete else ""
        except OSError as error:
            raise StateUnavailableError(
                f"a part of a large value could not be stored in {self._folder} ({error.strerror})"
            ) from error
        if not complete:
            self._under_way[part.sha256] = (path, have)
            return
        self._under_way.pop(part.sha256, None)
        if digest != part.sha256:
            path.unlink()
            raise ProtocolError("a transferred value does not have the digest that was promised")
        self._received[part.sha256] = path

    def _append(self, path: Path, have: int, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A part that was cut short by a full disk is written again as a whole.
            os.ftruncate(descriptor, have)
            os.lseek(descriptor, have, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    def offer(self, data: bytes) -> Value:
        """A value for the peer: inline, or kept for `read` when it is large."""
        if len(data) <= OFFERED_BYTES:
            return Value(inline=Raw(data))
        digest = identities.sha256_hex(data)
        self._offered[digest] = data
        return Value(content=ContentRef(bytes=len(data), media_type=blobs.JSON, sha256=digest))

    def read(self, wish: ContentRead, transaction: Transaction) -> dict[str, Any]:
        """A part of a value that was offered, or of a stored blob."""
        offered = self._offered.get(wish.sha256)
        if offered is not None:
            data = offered[wish.offset : wish.offset + PART_BYTES]
        else:
            data = blobs.read_part(transaction.sql(), bytes.fromhex(wish.sha256), wish.offset, PART_BYTES)
        return {"base64": base64.b64encode(data).decode()}

    def prepared(self, value: Value | None) -> Prepared:
        """A value of the peer, checked before any transaction: (digest, canonical bytes), or what was transferred."""
        if value is None:
            return None
        if isinstance(value.content, ContentRef):
            if isinstance(value.inline, Raw) or value.content.sha256 not in self._received:
                raise ProtocolError("a value is either inline, or transferred before it is referenced")
            return value.content
        data = inline(value)
        return identities.sha256(data), data

    def stored(self, prepared: Prepared, transaction: Transaction) -> tuple[bytes, bytes] | bytes | None:
        """What the hot path stores: (digest, canonical bytes), or the digest of what was transferred, stored now."""
        if isinstance(prepared, ContentRef):
            return blobs.put_json_bytes(transaction.sql(), self.take(prepared), transaction.now)
        return prepared

    def take(self, content: ContentRef) -> bytes:
        """The bytes of a value that was transferred before."""
        path = self._received.get(content.sha256)
        if path is None:
            raise ProtocolError("a value was referenced before it was transferred")
        try:
            return path.read_bytes()
        except OSError as error:
            raise StateUnavailableError(f"a large value cannot be read back ({error}); send it again") from error

    def bytes_of(self, value: Value) -> bytes:
        """A value's canonical bytes, whichever way it came."""
        return self.take(value.content) if isinstance(value.content, ContentRef) else inline(value)

    def bytes_of_payload(self, value: dict[str, Any]) -> bytes:
        """The canonical bytes of a client's value: `{"inline": value}` or `{"content": reference}`."""
        if "content" in value:
            return self.take(msgspec.convert(value["content"], ContentRef))
        given = value["inline"]
        return bytes(given) if isinstance(given, Raw) else canonical_json.encode(given)

    def close(self) -> None:
        """Remove the files."""
        for path in [*self._received.values(), *(path for path, _ in self._under_way.values())]:
            path.unlink(missing_ok=True)
        self._received.clear()
        self._under_way.clear()
        self._offered.clear()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def inline(value: Value) -> bytes:
    """The bytes of an inline value, which must be canonical: they become a blob under their own digest."""
    if not isinstance(value.inline, Raw):
        raise ProtocolError("a value holds neither bytes nor a reference")
    data = bytes(value.inline)
    canonical_json.check(data)
    return data
