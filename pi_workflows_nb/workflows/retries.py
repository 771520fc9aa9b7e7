"""How often, how far apart and after which errors a node is tried again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pi_workflows_nb.wire.errors import WorkflowDefinitionError

MOST_TRIES: Final = 1000


@dataclass(frozen=True)
class Retry:
    """At most `times` tries in all; `first`, `factor` and `cap` (seconds) give the pauses between them."""

    times: int
    first: float
    factor: float
    cap: float
    on: tuple[type[Exception], ...]

    def covers(self, error: BaseException) -> bool:
        """Whether an attempt that ended with this error may be followed by another."""
        return isinstance(error, self.on)

    def delay(self, failed_tries: int) -> float:
        """Seconds to wait after the `failed_tries`-th failed try (1 for the first)."""
        try:
            return min(self.cap, self.first * self.factor ** (failed_tries - 1))
        except OverflowError:
            return self.cap


def retry(
    times: int,
    backoff: tuple[float, float, float] = (1.0, 2.0, 60.0),
    on: type[Exception] | Iterable[type[Exception]] = (Exception,),
) -> Retry:
    """Try a node again when it fails.

    Takes the number of tries in all (1 to 1000); `backoff` as (first, factor, cap): seconds before the second try, what
    each further pause is multiplied by (at least 1), and the longest pause in seconds; and the exception classes that
    are worth another try, TimeoutError standing for a node that ran out of time. Each try is an attempt of its own, all
    together are one step. A manual effect that may have happened is never tried again.
    Raises WorkflowDefinitionError for numbers or classes that make no sense.
    """
    if isinstance(times, bool) or not _is_whole(times) or not 1 <= times <= MOST_TRIES:
        raise WorkflowDefinitionError(f"retry(times={times!r}): times is the number of tries in all, from 1 to 1000")
    try:
        first, factor, cap = (float(part) for part in backoff)
    except (TypeError, ValueError):
        raise _bad_backoff(backoff) from None
    if not (math.isfinite(first) and math.isfinite(factor) and math.isfinite(cap)):
        raise _bad_backoff(backoff)
    if first < 0 or factor < 1 or cap < first:
        raise _bad_backoff(backoff)
    classes: tuple[object, ...] = (on,) if isinstance(on, type) else tuple(on)
    kept: list[type[Exception]] = []
    for given in classes:
        if not (isinstance(given, type) and issubclass(given, Exception)):
            raise WorkflowDefinitionError(
                f"retry(on=…): {given!r} is not an exception class; write on=(ConnectionError,) "
                "or another subclass of Exception"
            )
        kept.append(given)
    if not kept:
        raise WorkflowDefinitionError(
            "retry(on=()): no error would ever be tried again; name at least one class or leave `on` out"
        )
    return Retry(times, first, factor, cap, tuple(kept))


def _is_whole(value: object) -> bool:
    return isinstance(value, int)


def _bad_backoff(backoff: object) -> WorkflowDefinitionError:
    return WorkflowDefinitionError(
        f"retry(backoff={backoff!r}): backoff is (first, factor, cap), the pause before the second try in seconds, "
        "a factor of at least 1, and the longest pause (not below the first), as (1, 2, 60)"
    )
