"""Frames, read strictly: of exactly their struct, and canonical to the byte. All else is one `ProtocolError`."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from . import canonical_json
from .errors import NotJsonError, ProtocolError

T = TypeVar("T")
FAULT_CHARACTERS: Final = 300
_encode: Final = msgspec.json.Encoder().encode
_FAULTS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Read the bytes of a struct whose fields stand in the order of their names.

    Values that stay raw in it are not looked into: whoever uses one checks it. A struct that holds values of any shape
    is read with `converted`.
    """
    data = bytes(data)  # what is raw compares with nothing
    try:
        found = decoder.decode(data)
        again = _encode(found)
    except _FAULTS as error:
        raise ProtocolError(_said(error)) from None
    if again != data:
        canonical_json.check(data)
        raise ProtocolError("A frame leaves out what it must say.")
    return found


def converted(kind: Any, data: bytes) -> Any:
    """Read the bytes of a struct `kind`, or of one of a union, with values of any shape in it."""
    try:
        found = msgspec.convert(canonical_json.decode(data), kind)
        again = canonical_json.encode(msgspec.to_builtins(found))
    except NotJsonError as error:
        raise ProtocolError(f"A frame is not canonical JSON: {_said(error)}") from None
    except _FAULTS as error:
        raise ProtocolError(_said(error)) from None
    if again != data:
        canonical_json.check(data)
        raise ProtocolError("A frame leaves out what it must say.")
    return found


def of_kind(kind: type[T], value: Any) -> T:
    """Read a part of a frame that was decoded before, as `kind`."""
    try:
        return msgspec.convert(value, kind)
    except _FAULTS as error:
        raise ProtocolError(_said(error)) from None


def _said(error: BaseException) -> str:
    return str(error)[:FAULT_CHARACTERS]
