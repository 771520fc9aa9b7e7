"""How times, statuses and counts are worded for people, the same in every representation."""

from __future__ import annotations

import datetime as dt
from typing import Final

# One word, one colour: dark enough for white text, in light and dark themes.
COLOURS: Final = {
    "queued": "#546e7a",
    "running": "#1565c0",
    "waiting": "#8a5200",
    "paused": "#00697a",
    "ambiguous": "#6a1b9a",
    "completed": "#2e7d32",
    "failed": "#c62828",
    "timed_out": "#ad1457",
    "cancelled": "#616161",
    "interrupted": "#616161",
    "pending": "#546e7a",
}
NEUTRAL: Final = "#757575"


def colour(status: str) -> str:
    """The colour of a status; grey for one that is unknown."""
    return COLOURS.get(status, NEUTRAL)


def words(status: str) -> str:
    """A status as a person reads it."""
    return status.replace("_", " ")


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def counts(by_status: dict[str, int]) -> str:
    """`2 waiting, 1 timed out`; empty for nothing."""
    return ", ".join(f"{number:,} {words(status)}" for status, number in by_status.items())


def duration(milliseconds: int | None) -> str:
    """A length of time in the two units that matter: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 3 min`, `2 d 4 h`."""
    if milliseconds is None:
        return ""
    if milliseconds < 1_000:
        return f"{max(0, milliseconds)} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    seconds = milliseconds // 1000
    for large, small, large_word, small_word in (
        (86_400, 3_600, "d", "h"),
        (3_600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if seconds >= large:
            return f"{seconds // large} {large_word} {seconds % large // small} {small_word}"
    return f"{seconds} s"


def moment(milliseconds: int | None) -> str:
    """A moment as `2026-01-31 12:00:00 UTC`."""
    if milliseconds is None:
        return ""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def one_line(text: str, limit: int = 200) -> str:
    """Text without line breaks and control characters, cut with an ellipsis."""
    flat = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
