"""Payloads as they stand in the file, for people."""

from __future__ import annotations

from typing import Any

from pi_workflows_nb.wire import canonical_json


def decoded(stored: bytes | str) -> Any:
    """A stored payload as Python value."""
    return stored if isinstance(stored, str) else canonical_json.decode(stored)


def message(stored: bytes | str | None) -> str | None:
    """A stored text, such as an error."""
    return stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
