"""What a managed resource may hold: names, specs, statuses, payloads, finalizers, and how large they may be.

Checked and encoded before a transaction begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..wire import canonical_json, identities
from ..wire.errors import ManagedResourceError
from ..wire.resource_status import Status

SPEC_BYTES: Final = 1 << 20
"""What the canonical JSON of a spec, or of a status, may take."""

PAYLOAD_BYTES: Final = 64 << 10
"""What the canonical JSON of an event's payload may take."""

NO_PAYLOAD: Final = b"{}"


def encode_spec(spec: Any) -> bytes:
    """The canonical bytes of a spec; `NotJsonError`, or `ManagedResourceError` when it is too large."""
    return _limited(canonical_json.encode(spec), SPEC_BYTES, "a spec")


def encode_status(status: Status) -> bytes:
    """The canonical bytes of a status; errors as `encode_spec`."""
    return _limited(canonical_json.encode(status.to_json()), SPEC_BYTES, "a status")


def encode_payload(payload: dict[str, Any] | None) -> bytes:
    """The canonical bytes of an event's payload; errors as `encode_spec`."""
    if payload is None:
        return NO_PAYLOAD
    if not isinstance(payload, dict):
        raise ManagedResourceError(f"the payload of an event is a JSON object, not a {type(payload).__name__}")
    return _limited(canonical_json.encode(payload), PAYLOAD_BYTES, "the payload of an event")


def _limited(content: bytes, limit: int, what: str) -> bytes:
    if len(content) > limit:
        raise ManagedResourceError(
            f"{what} of {len(content):,} bytes: {limit:,} is the most. Keep large values in files, and their names here"
        )
    return content


def require_text(value: str, what: str) -> str:
    """Give a text that the file can hold; `ManagedResourceError` otherwise."""
    if not isinstance(value, str):
        raise ManagedResourceError(f"{what} is a text, not a {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ManagedResourceError(f"{what} holds half a character at position {error.start}: {value!r}") from None
    return value


def require_name(value: str, what: str) -> str:
    """Give a manager's name or a key, 1 to 512 UTF-16 code units of any kind; `ManagedResourceError` otherwise."""
    if not identities.is_resource_name(require_text(value, what)):
        units = identities.utf16_units(value)
        raise ManagedResourceError(f"{what} has 1 to 512 UTF-16 code units, not {units}")
    return value


def require_finalizers(finalizers: Iterable[str]) -> tuple[str, ...]:
    """Give finalizers in their order; `ManagedResourceError` when one stands twice or is no text."""
    if isinstance(finalizers, str):
        raise ManagedResourceError("finalizers are a list of texts, not one text")
    found = tuple(require_text(each, "a finalizer") for each in finalizers)
    twice = next((each for index, each in enumerate(found) if each in found[:index]), None)
    if twice is not None:
        raise ManagedResourceError(f"finalizers are unique, but {twice!r} stands twice")
    return found
