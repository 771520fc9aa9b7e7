"""Columns of frames, as SQL.

A column knows two SQL forms. The *plain* one is for people who write SQL (`runs_v` and its like). The *packed* one is
what a frame fetches: words of a closed set as small integers, missing numbers and times as one sentinel, so that a
million rows become numpy arrays without a Python object for each missing value or repeated word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["text", "digest", "count", "flag", "time", "duration", "state", "json", "message", "content"]

# The smallest 64-bit integer is NaT for numpy; the file's numbers never reach it.
MISSING: Final = -(2**63)


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
