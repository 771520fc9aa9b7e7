"""Workflows inside workflows: what is mounted, and by which doors it is left.

A child is entered through the name it is mounted under, and left by `mount.exit`. What the parent sees of it is
`{"exit", "output"}` under that name, and nothing else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.nodes import check_callback, check_name, check_validate

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow


@dataclass(frozen=True, eq=False)
class Include:
    """A child and the input it gets: `workflow` is an object, or a text by which it is found.

    `input` is JSON, or a callable of the parent's context that gives it; None hands the parent's own input on.
    `settings` is given in the same way, and None lets the child's settings begin as it declares.
    """

    workflow: Workflow | str
    input: Any = None
    settings: Any = None


@dataclass(frozen=True, eq=False)
class Exit:
    """A way out of a workflow that is mounted: behind `node`, a node of its own or the exit `mount.exit` of a child."""

    node: str
    validate: Any = None


def include(workflow: Workflow | str | os.PathLike[str], *, input: Any = None, settings: Any = None) -> Include:
    """Mount a workflow inside another, as a value of its `includes`.

    Takes a Workflow, a name, `builtin:NAME`, or the path of a file (one that starts with a dot begins at the folder of
    the file that includes it, else at the project); and `input`, JSON or a callable of the parent's context that gives
    the child's input, which the child then checks as its own. Without it the child gets the parent's input. `settings`,
    likewise, is what the child's settings begin as, if it has any.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    from pi_workflows_nb.workflows.definition import Workflow

    given: object = workflow
    if isinstance(given, os.PathLike):
        path = os.fspath(given)
        given = path if os.sep in path else os.path.join(os.curdir, path)
    if not isinstance(given, Workflow) and not (isinstance(given, str) and given.strip()):
        raise WorkflowDefinitionError(
            f"include: {workflow!r} is neither a workflow nor the name or path of one, as pw.include('triage')"
        )
    if callable(input):
        check_callback("include, input", input, gives="the child's input")
    if callable(settings):
        check_callback("include, settings", settings, gives="what the child's settings begin as")
    return Include(given, input, settings)


def exit(node: str, *, validate: Any = None) -> Exit:  # noqa: A001 - it reads as what it is, `pw.exit`
    """A way out of a workflow, as a value of its `exits`.

    `node` is the node, or `mount.exit`, behind which it lies; no edge may leave it. `validate` looks at the output, and
    is a callable or a type, as in `agent`.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    check_place(node, "node (of an exit)")
    check_validate(f"exit behind {node!r}", validate)
    return Exit(node, validate)


def check_place(name: object, what: str) -> str:
    """Give back the name of a node, or `mount.exit`; WorkflowDefinitionError when it is neither."""
    if isinstance(name, str) and name.count(".") == 1:
        for part in name.split("."):
            check_name(part, what)
        return name
    return check_name(name, what)


def mount_of(place: str) -> str | None:
    """The mount that `mount.exit` leaves; None for a node."""
    mount, dot, _ = place.rpartition(".")
    return mount if dot else None
