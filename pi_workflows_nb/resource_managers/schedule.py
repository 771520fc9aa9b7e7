"""The built-in manager `schedule`: each resource of it starts runs of one workflow, again and again or once.

The spec is `{"everyMs"}` or `{"atMs"}` (milliseconds since the epoch), and `{"workflow", "input"}`. The moment that is
due stands in the status, and is the key of the run that it asks for: one moment is one run, whatever dies in between.
Moments that nobody served are made up for by one run, at once.
"""

from __future__ import annotations

import time
from typing import Any

from pi_workflows_nb.resource_managers import definition
from pi_workflows_nb.resource_managers.definition import PassResult, ResourceManager
from pi_workflows_nb.wire.errors import ManagedResourceError

LONGEST_SECONDS = 24 * 3600.0
"""A rest is at most so long: the clock of the machine may be set meanwhile."""


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return int(time.time() * 1000)


def following(due: int, every: int, now: int) -> int:
    """The next moment after `now` of those that lie `every` milliseconds apart, `due` among them."""
    return due + every * (max(0, now - due) // every + 1)


def first_due(spec: Any, now: int) -> int:
    """When a schedule is due for the first time; `ManagedResourceError` for a spec that is none."""
    if not isinstance(spec, dict) or not isinstance(spec.get("workflow"), str) or "input" not in spec:
        raise ManagedResourceError('a schedule wants {"workflow", "input"} and one of "everyMs" and "atMs"')
    times = [spec[name] for name in ("everyMs", "atMs") if name in spec]
    if len(times) != 1 or isinstance(times[0], bool) or not isinstance(times[0], int) or times[0] < 1:
        raise ManagedResourceError('a schedule has either "everyMs" or "atMs", a whole number of milliseconds')
    return now + times[0] if "everyMs" in spec else int(times[0])


def fresh(spec: Any) -> dict[str, Any]:
    """The status of a schedule that was just made."""
    return {"count": 0, "dueMs": first_due(spec, now_ms()), "generation": 1, "lastDueMs": None, "lastRunId": None}


schedule = ResourceManager("schedule", initial_status=fresh)


@schedule.reconcile
async def reconcile(ctx: Any, resource: Any) -> PassResult:
    """Start a run when one is due, and rest until the next moment."""
    if resource.deletion_timestamp is not None:
        return definition.settled()
    spec, status, now = resource.spec, dict(resource.status.resource_manager_status), now_ms()
    if status["generation"] != resource.generation:
        status.update(dueMs=first_due(spec, now), generation=resource.generation)
    due = status["dueMs"]
    if due is not None and due <= now:
        key = f"{resource.generation}:{due}"
        child = await ctx.workflows.ensure(request_key=key, workflow=spec["workflow"], input=spec["input"])
        every = spec.get("everyMs")
        due = None if every is None else following(due, every, now)
        status.update(count=status["count"] + 1, dueMs=due, lastDueMs=status["dueMs"], lastRunId=child.run_id)
    if due is None:
        return definition.settled(status=status, conditions=[definition.condition_true("Ready", "Fired")])
    ready = [definition.condition_true("Ready", "Waiting")]
    rest = min(LONGEST_SECONDS, max(0, due - now) / 1000)
    return definition.requeue_after(rest, status=status, conditions=ready)
