"""The `%%workflow` cells of this kernel, by name: a cell run again replaces the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

_CELLS: dict[str, tuple[str, Workflow]] = {}


def register(name: str, text: str, workflow: Workflow) -> None:
    """Keep the text of a cell and the workflow it made."""
    _CELLS[name] = (text, workflow)


def text_of(name: str) -> str | None:
    """The text of the newest cell of that name, if one was run."""
    known = _CELLS.get(name)
    return None if known is None else known[0]


def made(workflow: Workflow) -> bool:
    """Whether this very object came from a cell, so that its text says all of it."""
    known = _CELLS.get(workflow.name)
    return known is not None and known[1] is workflow
