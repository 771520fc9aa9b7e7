"""Frames and values as small tables for a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def of_frame(title: str, frame: pd.DataFrame, columns: Sequence[str]) -> Table:
    """Some columns of a frame. Takes a title, the frame and the names of columns in it."""
    numbers = [pd.api.types.is_numeric_dtype(frame[name]) or frame[name].dtype.kind == "m" for name in columns]
    table = _table(dict(zip(columns, numbers, strict=True)), title)
    for values in frame[list(columns)].itertuples(index=False, name=None):
        table.add_row(*(Text(_cell(value)) for value in values))
    return table


def of_rows(rows: Iterable[Mapping[str, Any]], titles: Mapping[str, str]) -> Table:
    """Rows of JSON values. Takes the keys to show with their titles."""
    listed = list(rows)
    table = _table({title: isinstance(listed[0][key], int) if listed else False for key, title in titles.items()}, None)
    for row in listed:
        table.add_row(*(Text(f"{value:,}" if isinstance(value, int) else str(value)) for value in map(row.get, titles)))
    return table


def duration(length: pd.Timedelta) -> str:
    """A length of time as `12 ms` or `1.2 s`."""
    seconds = length.total_seconds()
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def words(value: Any) -> str:
    """A JSON value in one line: the plain fields of an object, how many there are of everything else."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {words(field)}" for key, field in value.items())
    if isinstance(value, list):
        return f"({len(value)})"
    return value if isinstance(value, str) else json.dumps(value)


def _table(titles: Mapping[str, bool], title: str | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold cyan", pad_edge=False)
    for name, number in titles.items():
        table.add_column(name, justify="right" if number else "left", overflow="ellipsis", no_wrap=True)
    return table


def _cell(value: Any) -> str:
    if value is pd.NaT or value is pd.NA or value is None:
        return "–"
    if isinstance(value, pd.Timestamp):
        return value.strftime("%H:%M:%S.%f")[:-3]
    return duration(value) if isinstance(value, pd.Timedelta) else str(value)
