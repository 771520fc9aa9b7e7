"""Which node comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.errors import RoutingError
from pi_workflows_nb.workflows.values import case_of

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.compiled import Compiled
    from pi_workflows_nb.workflows.definition import Workflow

_ABSENT: Final = object()


def next_node(workflow: Workflow | Compiled, node_id: str, result: Mapping[str, Any], output: Any) -> str | None:
    """The node after `node_id`, or None when the run ends there.

    `result` is the node's result record (`outcome`, `error`, …), `output` its accepted output. After an outcome other
    than `ok` only a switch on `$result.…` leads on: there is no output that the other edges could stand for.
    Raises RoutingError, naming the value and listing the cases, when a switch has no case for what it finds.
    """
    edge = workflow.edges.get(node_id)
    if edge is None:
        return None
    path = edge.path(workflow.nodes.get(node_id))
    if path is None:
        return edge.target if result.get("outcome") == "ok" else None
    on_result = path.startswith("$result.")
    if not on_result and result.get("outcome") != "ok":
        return None
    found = _look_up(result if on_result else output, path)
    case = None if found is _ABSENT else case_of(found)
    if case is not None and case in edge.cases:
        return edge.cases[case]
    cases = ", ".join(repr(known) for known in edge.cases)
    said = "nothing is there" if found is _ABSENT else f"the value is {_short(found)}"
    text = (
        f"node {node_id!r}: its edge reads {path}, but {said}; the cases are {cases}. "
        "Add the case to the edge, or return one of them"
    )
    error = result.get("error")
    if on_result and error:
        text += f" (the node itself ended with: {_short(error)})"
    raise RoutingError(text)


def _look_up(value: Any, path: str) -> Any:
    for field in path.split(".")[1:]:
        if not isinstance(value, Mapping) or field not in value:
            return _ABSENT
        value = value[field]
    return value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and len(value) > 200 else repr(value)
    return text if len(text) <= 200 else text[:199] + "…"
