"""The status of a managed resource: what its manager has observed.

Stored, and in frames, it is a JSON object with camelCase names and ISO times; here names and times are Python's. What
another implementation left out, or added, is read without complaint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

ConditionStatus = bool | Literal["unknown"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
"""What a patch leaves as it is; None takes it away."""


@dataclass(frozen=True)
class Condition:
    """One aspect of a resource, such as `Ready`, with a reason in one word and perhaps a message.

    `observed_generation` and `last_transition_time` (milliseconds since the epoch) are set by `merge_conditions`.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str | None = None
    observed_generation: int | None = None
    last_transition_time: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        found: dict[str, Any] = {"type": self.type, "status": self.status, "reason": self.reason}
        if self.message is not None:
            found["message"] = self.message
        if self.observed_generation is not None:
            found["observedGeneration"] = self.observed_generation
        if self.last_transition_time is not None:
            found["lastTransitionTime"] = iso_time(self.last_transition_time)
        return found

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Condition:
        """Read the stored form."""
        moved = stored.get("lastTransitionTime")
        return cls(
            stored.get("type", ""),
            stored.get("status", "unknown"),
            stored.get("reason", ""),
            stored.get("message"),
            stored.get("observedGeneration"),
            None if moved is None else milliseconds(moved),
        )


@dataclass(frozen=True)
class ChildRun:
    """The child workflow that a resource last asked for."""

    request_id: str
    run_id: str | None
    state: str
    attempt: int

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        run = {} if self.run_id is None else {"runId": self.run_id}
        return {"requestId": self.request_id, **run, "state": self.state, "attempt": self.attempt}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> ChildRun:
        """Read the stored form."""
        return cls(
            stored.get("requestId", ""), stored.get("runId"), stored.get("state", "pending"), stored.get("attempt", 0)
        )


@dataclass(frozen=True)
class Status:
    """What was observed, at which generation of the spec; `resource_manager_status` is the manager's own JSON value."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    resource_manager_status: Any = None
    workflow_run: ChildRun | None = None

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        found: dict[str, Any] = {
            "observedGeneration": self.observed_generation,
            "conditions": [condition.to_json() for condition in self.conditions],
            "resourceManagerStatus": self.resource_manager_status,
        }
        if self.workflow_run is not None:
            found["workflowRun"] = self.workflow_run.to_json()
        return found

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Status:
        """Read the stored form."""
        child = stored.get("workflowRun")
        return cls(
            stored.get("observedGeneration", 0),
            tuple(Condition.from_json(condition) for condition in stored.get("conditions", ())),
            stored.get("resourceManagerStatus"),
            None if child is None else ChildRun.from_json(child),
        )

    def patched(
        self,
        *,
        generation: int,
        now: int,
        conditions: Iterable[Condition] = (),
        resource_manager_status: Any = UNSET,
        workflow_run: ChildRun | _Unset | None = UNSET,
    ) -> Status:
        """The status after a pass that saw `generation`; `now` in milliseconds, what is UNSET stays."""
        child = self.workflow_run if isinstance(workflow_run, _Unset) else workflow_run
        return Status(
            generation,
            merge_conditions(self.conditions, conditions, generation=generation, now=now),
            self.resource_manager_status if resource_manager_status is UNSET else resource_manager_status,
            child,
        )


def merge_conditions(
    current: Iterable[Condition], updates: Iterable[Condition], *, generation: int, now: int
) -> tuple[Condition, ...]:
    """The conditions after an update, one of each type, in the order in which the types were first seen.

    The time of transition moves when the status value does, not with the reason or the message.
    """
    merged = {condition.type: condition for condition in current}
    for update in updates:
        before = merged.get(update.type)
        kept = before is not None and before.status == update.status
        moved = before.last_transition_time if before is not None and kept else None
        merged[update.type] = replace(
            update, observed_generation=generation, last_transition_time=now if moved is None else moved
        )
    return tuple(merged.values())


def iso_time(moment: int) -> str:
    """Milliseconds since the epoch, as `2026-01-01T00:00:00.000Z`."""
    return f"{_EPOCH + timedelta(milliseconds=moment):%Y-%m-%dT%H:%M:%S}.{moment % 1000:03d}Z"


def milliseconds(text: str) -> int:
    """The time of an ISO text, in milliseconds since the epoch; `ValueError` when it is none."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
