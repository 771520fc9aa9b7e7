"""A resource manager brought to life in a child, and what must be known of it before a resource of it is applied."""

from __future__ import annotations

from typing import Any, Final

from pi_workflows_nb.resource_managers.definition import ResourceManager
from pi_workflows_nb.runner.reconcile_context import run_to_end
from pi_workflows_nb.wire.errors import SourceError
from pi_workflows_nb.workflows import sources
from pi_workflows_nb.workflows.values import to_json

SOUGHT: Final = sources.Sought(ResourceManager, "resource manager", "m = pw.ResourceManager('name')")


def load_manager(frozen: dict[str, Any], name: str, filename: str | None = None) -> ResourceManager:
    """The manager of a frozen source, which has the name that is wanted. This runs code; `SourceError`."""
    manager = sources.load_object(frozen)
    if manager is None and isinstance(frozen.get("text"), str):
        manager = sources.load_kind(frozen["text"], SOUGHT, name=name, filename=filename)
    if not isinstance(manager, ResourceManager):
        raise SourceError("the source holds no resource manager")
    if manager.name != name:
        raise SourceError(f"the source makes the resource manager {manager.name!r}, not {name!r}: give both one name")
    manager.function  # noqa: B018 - raises where there is none
    return manager


def describe(question: dict[str, Any]) -> dict[str, Any]:
    """`{"op": "describeManager", "source", "name", "filename"}`: its limits, and its initial status if it is one value.

    `initial` is None where it must be asked for each spec.
    """
    manager = load_manager(question["source"], question["name"], question.get("filename"))
    computed = callable(manager.initial_status)
    return {
        "concurrency": manager.concurrency,
        "initial": None if computed else {"value": to_json(manager.initial_status)},
        "timeoutMs": int(manager.timeout * 1000),
    }


def initial_status(question: dict[str, Any]) -> dict[str, Any]:
    """`{"op": "initialStatus", "source", "name", "filename", "spec"}`: the manager's status of a new resource."""
    manager = load_manager(question["source"], question["name"], question.get("filename"))
    given = manager.initial_status
    return {"value": to_json(run_to_end(given(question["spec"])) if callable(given) else given)}
