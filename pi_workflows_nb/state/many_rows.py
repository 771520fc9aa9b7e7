"""Many rows by few statements.

`executemany` gives up the interpreter once a row, and beside a cell that computes takes it back a switch interval later
each time. One statement of many rows gives it up once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final

LARGEST: Final = 64
"""Rows a statement: with 16 columns far below the 32,766 variables that SQLite takes."""


def insert(connection: sqlite3.Connection, statement: str, rows: Collection[tuple[Any, ...] | list[Any]]) -> None:
    """Insert rows by a statement for one, `INSERT … VALUES (?, …) …`.

    Errors: those of SQLite for the row that it refuses; whether rows before it stay is up to the transaction.
    """
    left, following = len(rows), iter(rows)
    while left:
        # Powers of two, so that few texts are prepared, once each.
        count = min(LARGEST, 1 << (left.bit_length() - 1))
        connection.execute(_of_rows(statement, count), tuple(chain.from_iterable(islice(following, count))))
        left -= count


@lru_cache
def _of_rows(statement: str, count: int) -> str:
    before, values, after = statement.partition(" VALUES ")
    row, closing, rest = after.partition(")")
    return f"{before}{values}{', '.join([row + closing] * count)}{rest}"
