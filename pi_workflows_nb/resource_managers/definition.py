"""Writing a resource manager: its functions, what a pass may end with, and what an observation may say.

Safe in a child process: nothing here knows a file, a server or a notebook.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pi_workflows_nb.wire.errors import ManagedResourceError, ResourceManagerDefinitionError
from pi_workflows_nb.wire.resource_status import UNSET, Condition, ConditionStatus

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
PASS_SECONDS: Final = 60.0
MOST_SECONDS: Final = 24 * 3600.0
LONGEST_REST: Final = 100 * 365 * 24 * 3600.0

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PassResult:
    """How a pass ends; made by `ctx.settled`, `ctx.requeue` and `ctx.requeue_after`.

    `after` is in seconds, None for a settled resource. `status` is a patch of the manager's own status.
    """

    after: float | None
    status: Any = UNSET
    conditions: tuple[Condition, ...] = ()
    finalizers: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Observation:
    """What is known of an effect in the world; made by `applied`, `not_applied` and `cannot_tell`."""

    state: Literal["applied", "not_applied", "cannot_tell"]
    external_ref: str | None = None
    reason: str | None = None


def applied(external_ref: str | None = None) -> Observation:
    """Say that an effect has happened; `external_ref` is what the world calls its result.

    What `observe=` returns when it finds the effect, and what `apply=` may return to name what it made.
    """
    if external_ref is not None and not isinstance(external_ref, str):
        raise ManagedResourceError(f"external_ref={external_ref!r}: it is a text that names what was made outside")
    return Observation("applied", external_ref)


def not_applied() -> Observation:
    """Say, as the return value of `observe=`, that an effect has not happened: it is applied then."""
    return Observation("not_applied")


def cannot_tell(reason: str | None = None) -> Observation:
    """Say, as the return value of `observe=`, that nobody can know whether an effect has happened.

    It stays indeterminate, and is not applied again, until a person confirms it or has it tried again.
    """
    return Observation("cannot_tell", reason=None if reason is None else str(reason))


def condition_true(type: str, reason: str, message: str | None = None) -> Condition:
    """One aspect of a resource that holds, such as `Ready`, with a reason in one word."""
    return _condition(type, True, reason, message)


def condition_false(type: str, reason: str, message: str | None = None) -> Condition:
    """One aspect of a resource that does not hold."""
    return _condition(type, False, reason, message)


def condition_unknown(type: str, reason: str, message: str | None = None) -> Condition:
    """One aspect of a resource of which nothing is known."""
    return _condition(type, "unknown", reason, message)


def _condition(type: str, status: ConditionStatus, reason: str, message: str | None) -> Condition:
    texts: tuple[tuple[str, object], ...] = (("type", type), ("reason", reason))
    for word, value in texts:
        if not isinstance(value, str) or not value:
            raise ManagedResourceError(f"the {word} of a condition is a text such as 'Ready', not {value!r}")
    if message is not None and not isinstance(message, str):
        raise ManagedResourceError(f"the message of a condition is a text, not {message!r}")
    return Condition(type, status, reason, message)


def settled(
    *, status: Any = UNSET, conditions: Iterable[Condition] = (), finalizers: Iterable[str] | None = None
) -> PassResult:
    """End a pass: nothing is to do until the spec changes or something else wakes the resource."""
    return _result(None, status, conditions, finalizers)


def requeue_after(
    seconds: float | timedelta,
    *,
    status: Any = UNSET,
    conditions: Iterable[Condition] = (),
    finalizers: Iterable[str] | None = None,
) -> PassResult:
    """End a pass: there is to be another after so many seconds (or a timedelta), sooner if something happens."""
    given = _seconds(seconds)
    if given is None or not 0 <= given <= LONGEST_REST:
        raise ManagedResourceError(
            f"requeue_after({seconds!r}): it is a number of seconds, 0 or more, or a timedelta, of at most 100 years"
        )
    return _result(given, status, conditions, finalizers)


def _seconds(given: object) -> float | None:
    """A length of time in seconds; None when it is none."""
    value = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _result(
    after: float | None, status: Any, conditions: Iterable[Condition], finalizers: Iterable[str] | None
) -> PassResult:
    held = [conditions] if isinstance(conditions, Condition) else list(conditions)
    if not all(isinstance(one, Condition) for one in held):
        raise ManagedResourceError(
            "conditions= is a list of pw.condition_true(…), condition_false or condition_unknown"
        )
    if isinstance(finalizers, str):
        raise ManagedResourceError("finalizers= is a list of texts, not one text")
    listed = None if finalizers is None else tuple(finalizers)
    return PassResult(after, status, tuple(held), listed)


class ResourceManager:
    """A manager of resources: compares what is wanted with the world, pass after bounded pass.

    Takes a name (`[a-z][a-z0-9-]*`), the manager's part of the status of a new resource (a JSON value, or a function
    of the spec that gives one), the seconds a pass may take (60 by default), how many of its passes may run at once
    (by default as many as the server runs at all), and the workflows that `ctx.workflows.ensure` starts by name and
    that exist in this notebook only. `ResourceManagerDefinitionError` for what cannot be.

    ```python
    pr = pw.ResourceManager("pull-request", initial_status={"phase": "observing"})

    @pr.reconcile
    async def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", "Merged")])
    ```
    """

    def __init__(
        self,
        name: str,
        initial_status: Any = None,
        timeout: float | timedelta = PASS_SECONDS,
        concurrency: int | None = None,
        workflows: Iterable[Workflow] = (),
    ) -> None:
        self.name = checked_name(name)
        self.initial_status = initial_status
        seconds = _seconds(timeout)
        if seconds is None or not 0 < seconds <= MOST_SECONDS:
            raise ResourceManagerDefinitionError(
                f"resource manager {name!r}: timeout={timeout!r} is a number of seconds, at most a day, or a timedelta"
            )
        self.timeout = seconds
        places: object = concurrency
        if places is not None and (isinstance(places, bool) or not isinstance(places, int) or places < 1):
            raise ResourceManagerDefinitionError(
                f"resource manager {name!r}: concurrency={concurrency!r} is a number of passes, 1 or more"
            )
        self.concurrency = concurrency
        self.workflows = tuple(workflows)
        self._reconcile: Callable[..., Any] | None = None

    def reconcile(self, function: F) -> F:
        """Take the function, sync or async, that makes a pass over one resource.

        It gets a `ReconcileContext` and the resource as it was read at the start of the pass (spec, status, generation,
        finalizers, deletion_timestamp, …), and returns `ctx.settled(…)`, `ctx.requeue(…)` or `ctx.requeue_after(…)`.
        """
        if not callable(function):
            raise ResourceManagerDefinitionError(
                f"resource manager {self.name!r}: reconcile takes a function of (ctx, resource)"
            )
        self._reconcile = function
        return function

    @property
    def function(self) -> Callable[..., Any]:
        """The function of a pass; `ResourceManagerDefinitionError` where none was given."""
        if self._reconcile is None:
            raise ResourceManagerDefinitionError(
                f"resource manager {self.name!r} has no reconcile function: put @….reconcile before one"
            )
        return self._reconcile

    def __repr__(self) -> str:
        return f"<resource manager {self.name!r}>"


def checked_name(name: object) -> str:
    """Give the name of a definition; `ResourceManagerDefinitionError` when a manager cannot be called so."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 512:
        raise ResourceManagerDefinitionError(
            f"resource manager {name!r}: a name has small letters, digits and -, and begins with a letter"
        )
    return name
