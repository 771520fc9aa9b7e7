"""What an update may say about how far something is: `pi-workflows.progress.v1`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pi_workflows_nb.wire.errors import UpdateError

PROGRESS: Final = "pi-workflows.progress.v1"
"""The `schema` of data that tells how far something is."""

STATUS: Final = ("pending", "running", "waiting", "blocked", "completed", "failed", "cancelled", "unknown")
OVER: Final = ("completed", "failed", "cancelled")
LONGEST: Final = {"label": 200, "phase": 128, "unit": 32}
NUMBERS: Final = ("completed", "total")
MOMENTS: Final = ("sourceUpdatedAt", "sourceEstimatedFinishAt")
FIELDS: Final = ("schema", "status", *LONGEST, *NUMBERS, *MOMENTS)

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def is_progress(data: Mapping[str, Any]) -> bool:
    """Whether the data of an update says that it is progress."""
    return data.get("schema") == PROGRESS


def check_progress(data: Mapping[str, Any]) -> None:
    """Raise `UpdateError`, which names the field and the fix, for data that is not progress of version 1."""
    for field in data:
        if field not in FIELDS:
            raise _wrong(f"there is no field {field!r}; the fields are {', '.join(FIELDS)}")
    if data.get("status") not in STATUS:
        raise _wrong(f"status is one of {', '.join(STATUS)}, not {data.get('status')!r}")
    for field, most in LONGEST.items():
        value = data.get(field, "")
        if not isinstance(value, str) or len(value) > most:
            raise _wrong(f"{field} is a text of at most {most} characters, not {value!r:.80}")
    for field in NUMBERS:
        value = data.get(field, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise _wrong(f"{field} is a number from 0 up, not {value!r:.80}; leave it out when it is not known")
        if field in data and not data.get("unit"):
            raise _wrong(f"{field} needs a unit, as 'unit': 'rows'")
    for field in MOMENTS:
        if field in data and moment(data[field]) is None:
            raise _wrong(f"{field} is a time with its offset, as '2026-01-31T12:00:00+01:00', not {data[field]!r:.80}")


def moment(text: object) -> int | None:
    """Milliseconds since the epoch of a time as RFC 3339 writes it, with its offset; None for anything else."""
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text):
        return None
    try:
        return round(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _wrong(what: str) -> UpdateError:
    return UpdateError(f"publish_update: this is no progress: {what}")
