"""The texts of `%%workflow` cells of this kernel, by name: a cell run again replaces its text."""

from __future__ import annotations

_TEXTS: dict[str, str] = {}


def register(name: str, text: str) -> None:
    """Keep the text of a cell."""
    _TEXTS[name] = text


def text_of(name: str) -> str | None:
    """The text of the newest cell of that name, if one was run."""
    return _TEXTS.get(name)


def names() -> list[str]:
    """The names of all cells that were run."""
    return sorted(_TEXTS)
