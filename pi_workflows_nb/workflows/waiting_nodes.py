"""Nodes that run no code while they last: a sleep, and the wait for an event."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.nodes import (
    DEFAULT_TIMEOUT,
    Callback,
    Checkpoint,
    Node,
    NodeType,
    Timeout,
    check_callback,
    check_common,
    check_text,
    check_validate,
)

MOST_SECONDS: Final = 1e10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sleep(Node):
    """A pause of `seconds`, until `until` (milliseconds since the epoch), or for as long as `fn` says.

    `by_clock` tells a moment, which a clock that is set brings nearer or moves away, from a while, which it does not.
    """

    type: ClassVar[NodeType] = "compute"
    kind: ClassVar[str] = "sleep"

    seconds: float | None = None
    until: int | None = None
    by_clock: bool = False

    def over(self, said: Any = None) -> tuple[int | None, int | None]:
        """The moment at which it is over, in ms since the epoch, or how long it lasts, in ms: one of both is None.

        `said` is what its function gave; `WorkflowDefinitionError` when that is not what it should be.
        """
        label = f"node {self.name!r}, whose function says how long to sleep"
        if self.by_clock:
            return (_moment(label, said) if self.until is None else self.until), None
        return None, round(1000 * (_seconds(label, said) if self.seconds is None else self.seconds))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WaitEvent(Checkpoint):
    """A checkpoint that `server.signal(event, value)` answers as well; `timeout` is how long it waits, in seconds."""

    kind: ClassVar[str] = "wait_event"

    event: str


def sleep(
    seconds: float | timedelta | Callback | None = None,
    *,
    until: datetime | Callback | None = None,
    status_detail: str | None = None,
) -> Sleep:
    """A node during which the run holds no process, for `seconds` or until a moment (a datetime with a time zone).

    Either may be a function of the context that gives it. A moment that has passed is no sleep. When the machine's
    clock is set meanwhile, `seconds` still last as long, and `until` is reached when the clock says so. The output is
    None.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = "sleep node"
    if (seconds is None) == (until is None):
        raise WorkflowDefinitionError(f"{label}: give the seconds, as pw.sleep(60), or until=<a datetime>, one of both")
    given = seconds if until is None else until
    common = check_common(label, DEFAULT_TIMEOUT, None, status_detail)
    if callable(given):
        gives = "seconds" if until is None else "a datetime"
        return Sleep(fn=check_callback(label, given, gives=gives), by_clock=until is not None, **common)
    if until is not None:
        return Sleep(until=_moment(label, until), by_clock=True, **common)
    return Sleep(seconds=_seconds(label, seconds), **common)


def wait_event(
    event: str,
    *,
    timeout: Timeout = None,
    summary: str | None = None,
    validate: Any = None,
    status_detail: str | None = None,
) -> WaitEvent:
    """A node that waits for an event by name, which `server.signal(event, value)` gives it, or `run.answer(value)`.

    The value is its output. After `timeout` seconds (None: it waits for ever; or a function of the context that gives
    either) its outcome is `timed_out`, which a switch on `$result.outcome` can route. `validate` and `summary` are as
    in `checkpoint`.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = "wait_event node"
    name: object = event
    if not isinstance(name, str) or not name or len(name) > 512:
        raise WorkflowDefinitionError(f"{label}: {event!r} is not the name of an event, a text of 1 to 512 characters")
    check_text(label, "summary", summary)
    check_validate(label, validate)
    common = check_common(label, timeout, None, status_detail)
    return WaitEvent(event=event, summary=summary, validate=validate, **common)


def _seconds(label: str, given: object) -> float:
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WorkflowDefinitionError(
            f"{label}: {given!r} is neither seconds nor a timedelta; a moment is given as until=..."
        )
    if not (math.isfinite(given) and 0 <= given <= MOST_SECONDS):
        raise WorkflowDefinitionError(f"{label}: {given!r} seconds; give a number from 0 to {MOST_SECONDS:g}")
    return float(given)


def _moment(label: str, given: object) -> int:
    if not isinstance(given, datetime):
        raise WorkflowDefinitionError(f"{label}: until={given!r} is not a datetime")
    if given.tzinfo is None or given.utcoffset() is None:
        raise WorkflowDefinitionError(
            f"{label}: until={given!r} has no time zone, so it is no moment; say which, as datetime.now(UTC)"
        )
    return max(0, round(given.timestamp() * 1000))
