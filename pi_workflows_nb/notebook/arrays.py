"""From rows of SQLite to typed pandas arrays.

The packed form of a column makes a million rows numpy arrays without a Python object for each missing value or repeated
word. This is the part of the room that needs pandas; who only starts a server and runs workflows never loads it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from pandas.arrays import BooleanArray, IntegerArray, StringArray

from .columns import MISSING, Column
from .stored import decoded, message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas.api.extensions import ExtensionArray

# Rows of a chunk die young, before the garbage collector looks at them twice.
CHUNK_ROWS: Final = 4_096
TEXT: Final = pd.StringDtype("python", na_value=pd.NA)
TIME: Final = pd.DatetimeTZDtype("ms", "UTC")


def dtype(column: Column) -> Any:
    """The dtype of the column in a frame, also in an empty one."""
    if column.kind == "state":
        return pd.CategoricalDtype(list(column.words), ordered=True)
    return {
        "count": pd.Int64Dtype(),
        "flag": pd.BooleanDtype(),
        "time": TIME,
        "duration": np.dtype("m8[ms]"),
        "json": np.dtype(object),
        "content": np.dtype(object),
    }.get(column.kind, TEXT)


def gather(column: Column, rows: Sequence[tuple[Any, ...]], position: int) -> np.ndarray[Any, Any]:
    """One numpy array with this column of a chunk of fetched rows."""
    values: Iterable[Any] = map(itemgetter(position), rows)
    if column.kind in {"state", "flag"}:
        return np.fromiter(values, np.int8, len(rows))
    if column.kind in {"count", "time", "duration"}:
        return np.fromiter(values, np.int64, len(rows))
    if column.kind in {"json", "content"}:
        values = (pd.NA if value is None else decoded(value) for value in values)
    elif column.kind == "message":
        values = map(message, values)
    return np.fromiter(values, object, len(rows))


def finish(column: Column, parts: list[np.ndarray[Any, Any]]) -> ExtensionArray | np.ndarray[Any, Any]:
    """The typed array over all chunks."""
    if not parts:
        return np.empty(0, object) if column.kind in {"json", "content"} else pd.array([], dtype=dtype(column))
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if column.kind == "state":
        return pd.Categorical.from_codes(values, dtype=dtype(column))
    if column.kind == "time":
        return pd.array(values.view("M8[ms]"), dtype=TIME, copy=False)
    if column.kind == "duration":
        return values.view("m8[ms]")
    if column.kind == "flag":
        return BooleanArray(values == 1, values == 2)
    if column.kind == "count":
        missing = values == MISSING
        values[missing] = 0
        return IntegerArray(values, missing)
    if column.kind in {"json", "content"}:
        return values
    return StringArray(values, dtype=TEXT)  # type: ignore[call-arg]
