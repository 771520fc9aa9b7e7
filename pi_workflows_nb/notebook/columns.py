"""Columns of frames: from rows of SQLite to typed pandas arrays.

A column knows two SQL forms. The *plain* one is for people who write SQL (`runs_v` and its like). The *packed* one is
what a frame fetches: words of a closed set as small integers, missing numbers and times as one sentinel, so that a
million rows become numpy arrays without a Python object for each missing value or repeated word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from pandas.arrays import BooleanArray, IntegerArray, StringArray

from pi_workflows_nb.wire import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pandas.api.extensions import ExtensionArray

Kind = Literal["text", "digest", "count", "flag", "time", "duration", "state", "json", "message", "content"]

# The smallest 64-bit integer is NaT for numpy; the file's numbers never reach it.
MISSING: Final = -(2**63)
# Rows of a chunk die young, before the garbage collector looks at them twice.
CHUNK_ROWS: Final = 4_096
TEXT: Final = pd.StringDtype("python", na_value=pd.NA)
TIME: Final = pd.DatetimeTZDtype("ms", "UTC")


@dataclass(frozen=True)
class Column:
    """One column of a frame.

    `sql` is the expression over the frame's source, `words` are all values of a state in their order, and `older` maps
    words of the file to the ones shown.
    """

    name: str
    kind: Kind
    sql: str
    words: tuple[str, ...] = ()
    older: dict[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> str:
        """The expression for SQL users: NULL where missing, words as shown, digests as hex, times in milliseconds."""
        if self.kind == "digest":
            return f"CASE WHEN {self.sql} IS NOT NULL THEN lower(hex({self.sql})) END"
        if self.older:
            cases = " ".join(f"WHEN '{stored}' THEN '{shown}'" for stored, shown in self.older.items())
            return f"CASE {self.sql} {cases} ELSE {self.sql} END"
        return self.sql

    @property
    def packed(self) -> str:
        """The expression that a frame fetches."""
        if self.kind == "state":
            cases = " ".join(f"WHEN '{self.stored(word)}' THEN {code}" for code, word in enumerate(self.words))
            return f"CASE {self.sql} {cases} ELSE -1 END"
        if self.kind in {"count", "time", "duration"}:
            return f"ifnull({self.sql}, {MISSING})"
        if self.kind == "flag":
            return f"ifnull({self.sql}, 2)"
        return self.plain

    def stored(self, word: str) -> str:
        """The file's word for one that is shown."""
        return next((stored for stored, shown in self.older.items() if shown == word), word)

    @property
    def dtype(self) -> Any:
        """The dtype of the column in a frame, also in an empty one."""
        if self.kind == "state":
            return pd.CategoricalDtype(list(self.words), ordered=True)
        return {
            "count": pd.Int64Dtype(),
            "flag": pd.BooleanDtype(),
            "time": TIME,
            "duration": np.dtype("m8[ms]"),
            "json": np.dtype(object),
            "content": np.dtype(object),
        }.get(self.kind, TEXT)

    def gather(self, rows: Sequence[tuple[Any, ...]], position: int) -> np.ndarray[Any, Any]:
        """One numpy array with this column of a chunk of fetched rows."""
        values: Iterable[Any] = map(itemgetter(position), rows)
        if self.kind in {"state", "flag"}:
            return np.fromiter(values, np.int8, len(rows))
        if self.kind in {"count", "time", "duration"}:
            return np.fromiter(values, np.int64, len(rows))
        if self.kind in {"json", "content"}:
            values = map(decoded, values)
        elif self.kind == "message":
            values = map(message, values)
        return np.fromiter(values, object, len(rows))

    def finish(self, parts: list[np.ndarray[Any, Any]]) -> ExtensionArray | np.ndarray[Any, Any]:
        """The typed array over all chunks."""
        if not parts:
            return pd.array([], dtype=self.dtype) if self.dtype != object else np.empty(0, object)
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self.kind == "state":
            return pd.Categorical.from_codes(values, dtype=self.dtype)
        if self.kind == "time":
            return pd.array(values.view("M8[ms]"), dtype=TIME, copy=False)
        if self.kind == "duration":
            return values.view("m8[ms]")
        if self.kind == "flag":
            return BooleanArray(values == 1, values == 2)
        if self.kind == "count":
            missing = values == MISSING
            values[missing] = 0
            return IntegerArray(values, missing)
        if self.kind in {"json", "content"}:
            return values
        return StringArray(values, dtype=TEXT)  # type: ignore[call-arg]


def decoded(stored: bytes | str | None) -> Any:
    """A stored payload as Python value: NA where there is none, so that it differs from a stored `null`."""
    if stored is None:
        return pd.NA
    return stored if isinstance(stored, str) else canonical_json.decode(stored)


def message(stored: bytes | str | None) -> str | None:
    """A stored text, such as an error."""
    return stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
