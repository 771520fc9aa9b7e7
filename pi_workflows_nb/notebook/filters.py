"""What a frame may be cut down to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Moment: TypeAlias = dt.datetime | dt.date | dt.timedelta | str | int
Words: TypeAlias = str | Sequence[str]


@dataclass(frozen=True)
class Filters:
    """What a frame is cut down to. None means everything; `since` and `until` are meant inclusive."""

    status: Words | None = None
    workflow: Words | None = None
    run: Any = None
    node: Words | None = None
    tag: str | None = None
    text: str | None = None
    aggregate: Words | None = None
    resource_manager: Words | None = None
    since: Moment | None = None
    until: Moment | None = None
    project: str | None = None
    order: Words | None = None
    limit: int | None = None
