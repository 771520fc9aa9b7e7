"""The `%%workflow` and `%%resource_manager` cells of this kernel, by name: a cell run again replaces the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pi_workflows_nb.resource_managers.definition import ResourceManager
    from pi_workflows_nb.workflows.definition import Workflow

_CELLS: dict[str, tuple[str, Workflow]] = {}
_MANAGERS: dict[str, tuple[str, ResourceManager]] = {}


def register(name: str, text: str, workflow: Workflow) -> None:
    """Keep the text of a cell and the workflow it made."""
    _CELLS[name] = (text, workflow)


def text_of(name: str) -> str | None:
    """The text of the newest cell of that name, if one was run."""
    known = _CELLS.get(name)
    return None if known is None else known[0]


def texts() -> dict[str, str]:
    """The texts of all cells by name."""
    return {name: text for name, (text, _) in _CELLS.items()}


def made(workflow: Workflow) -> bool:
    """Whether this very object came from a cell, so that its text says all of it."""
    known = _CELLS.get(workflow.name)
    return known is not None and known[1] is workflow


def workflow_texts() -> dict[str, str]:
    """The texts of the newest `%%workflow` cells, by name."""
    return {name: text for name, (text, _) in _CELLS.items()}


def register_manager(name: str, text: str, manager: ResourceManager) -> None:
    """Keep the text of a cell and the resource manager it made."""
    _MANAGERS[name] = (text, manager)


def manager_text(manager: ResourceManager | str) -> str | None:
    """The text of the newest cell that made this very manager, or one of that name; None where none did."""
    known = _MANAGERS.get(manager if isinstance(manager, str) else manager.name)
    if known is None or (not isinstance(manager, str) and known[1] is not manager):
        return None
    return known[0]
