"""What an invariant of the state file is.

Each is a query that gives `id, what is, what should be` of the rows that break it, in one pass over whole tables. A
file that another implementation made may deviate where it writes a run and its queue row apart, and sweeps
what depends on a run only when it is cancelled: there a rule only warns, or does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Rule:
    """One invariant; `elsewhere` is what breaking it means in a file that was not made here."""

    name: str
    table: str
    sql: str
    elsewhere: Literal["error", "warning", "allowed"] = "error"


TERMINAL: Final = "('completed', 'failed', 'timed_out', 'cancelled')"
