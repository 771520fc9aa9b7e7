"""Runs at times: what `server.every` and `server.once` ask the built-in manager `schedule` for."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.errors import ManagedResourceError
from pi_workflows_nb.wire.resource_messages import SCHEDULE
from pi_workflows_nb.workflows import discovery
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.values import to_json

from . import cells

if TYPE_CHECKING:
    from pathlib import Path

    from .managed_resource import ManagedResource
    from .resources import Resources

LEAST_MS = 1000


def every(
    resources: Resources, project: Path, interval: dt.timedelta, workflow: Workflow | str, given: Any, key: str | None
) -> ManagedResource:
    """Apply a schedule that fires again and again."""
    asked: object = interval
    if not isinstance(asked, dt.timedelta) or asked < dt.timedelta(milliseconds=LEAST_MS):
        raise ManagedResourceError(f"every({interval!r}): it is a timedelta of at least one second")
    return _apply(resources, project, {"everyMs": interval // dt.timedelta(milliseconds=1)}, workflow, given, key)


def once(
    resources: Resources,
    project: Path,
    moment: dt.datetime | dt.timedelta,
    workflow: Workflow | str,
    given: Any,
    key: str | None,
) -> ManagedResource:
    """Apply a schedule that fires once."""
    return _apply(resources, project, {"atMs": _moment(moment)}, workflow, given, key)


def _moment(moment: dt.datetime | dt.timedelta) -> int:
    """Milliseconds since the epoch."""
    if isinstance(moment, dt.timedelta):
        at = time.time() + moment.total_seconds()
    elif isinstance(moment, dt.datetime):
        at = (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp()
    else:
        raise ManagedResourceError(f"once({moment!r}): it is a datetime (UTC unless it names a zone) or a timedelta")
    if at <= 0:
        raise ManagedResourceError(f"once({moment!r}): that is before 1970")
    return int(at * 1000)


def _apply(
    resources: Resources, project: Path, when: dict[str, int], workflow: Workflow | str, given: Any, key: str | None
) -> ManagedResource:
    if isinstance(workflow, Workflow):
        name, own = workflow.name, [workflow]
    elif isinstance(workflow, str):
        name, own = workflow, []
        if cells.text_of(name) is None:
            discovery.find(name, project)  # says what there is when it is not there
    else:
        raise ManagedResourceError(f"{workflow!r} is neither a workflow nor the name of one")
    spec = {**when, "input": to_json(given), "workflow": name}
    if key is None:
        key = f"{name} {identities.sha256_hex(canonical_json.encode(spec))[:12]}"
    return resources.apply(SCHEDULE, key, spec, workflows=own)
