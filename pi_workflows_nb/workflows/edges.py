"""Edges: where a run goes when a node has ended. At most one leaves a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.composition import check_place
from pi_workflows_nb.workflows.human_decisions import HumanDecision
from pi_workflows_nb.workflows.nodes import Decision, Node, check_name
from pi_workflows_nb.workflows.values import case_of

PATH: Final = re.compile(r"\$(?:output|result)?(?:\.[^.\s]+)+")


@dataclass(frozen=True)
class Edge:
    """The way out of the node `source`: to `target`, or by the value at the path `switch` to one of `cases`.

    `decision` marks an edge that must have a case for each choice of its decision node; its path is then None and
    comes from the node.
    """

    source: str
    target: str | None = None
    switch: str | None = None
    cases: dict[str, str] = field(default_factory=dict)
    decision: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes this edge can lead to, each once, in order."""
        return (self.target,) if self.target is not None else tuple(dict.fromkeys(self.cases.values()))

    def path(self, node: Node | None) -> str | None:
        """The path this edge reads (`$.route`), given its source node; None for a plain edge."""
        if self.decision:
            return f"$.{node.field}" if isinstance(node, Decision | HumanDecision) else "$.route"
        return self.switch


def edge(
    source: str, target: str | None = None, *, switch: str | None = None, cases: Mapping[Any, str] | None = None
) -> Edge:
    """An edge from `source` to `target`, or with `switch=` and `cases=` the same as `switch(source, path, cases)`.

    Raises WorkflowDefinitionError when neither or both are given.
    """
    if switch is not None or cases is not None:
        if target is not None:
            raise WorkflowDefinitionError(
                f"edge from {source!r}: it has a target ({target!r}) and a switch; leave one of them out"
            )
        if switch is None:
            raise WorkflowDefinitionError(f"edge from {source!r}: cases need a path to look at, as switch='$.route'")
        return _switch(source, switch, cases)
    if target is None:
        raise WorkflowDefinitionError(
            f"edge from {source!r}: it leads nowhere; name the next node, or leave the edge out to end the run there"
        )
    return Edge(check_place(source, "node (start of an edge)"), check_name(target, "node (end of an edge)"))


def switch(source: str, path: str, cases: Mapping[Any, str]) -> Edge:
    """An edge from `source` that goes by a value.

    `path` is `$.field` (or `$output.field`) of the node's output, or `$result.field` of its result record
    (`$result.outcome` is ok, failed, timed_out or cancelled); deeper fields are joined by dots. `cases` maps values
    (text, numbers, True, False, None) to nodes. A value without a case fails the run.
    Raises WorkflowDefinitionError for a path or cases of another form.
    """
    return _switch(source, path, cases)


def decision_edge(source: str, cases: Mapping[str, str]) -> Edge:
    """The edge out of a decision, an agent's or a person's: a dict with the next node for each choice, none missing.

    Raises WorkflowDefinitionError for cases of another form; that all choices are there is checked with the workflow.
    """
    check_name(source, "node (start of an edge)")
    return Edge(source, cases=_cases(source, cases), decision=True)


def human_decision_edge(source: str, cases: Mapping[str, str]) -> Edge:
    """The edge out of a person's decision; the same as `decision_edge`."""
    return decision_edge(source, cases)


def _switch(source: str, path: object, cases: object) -> Edge:
    check_place(source, "node (start of an edge)")
    if not isinstance(path, str) or not PATH.fullmatch(path):
        raise WorkflowDefinitionError(
            f"edge from {source!r}: {path!r} is not a path; write '$.field' for a field of the output or "
            "'$result.outcome' for how the node ended"
        )
    return Edge(source, switch=path, cases=_cases(source, cases))


def _cases(source: str, cases: object) -> dict[str, str]:
    if not isinstance(cases, Mapping) or not cases:
        raise WorkflowDefinitionError(
            f"edge from {source!r}: cases={cases!r}; give a dict from value to node, as {{'bug': 'open_ticket'}}"
        )
    kept: dict[str, str] = {}
    for value, target in cases.items():
        case = case_of(value)
        if case is None:
            raise WorkflowDefinitionError(
                f"edge from {source!r}: {value!r} cannot be a case; cases are texts, numbers, True, False or None"
            )
        if case in kept:
            raise WorkflowDefinitionError(f"edge from {source!r}: two cases mean {case!r}; keep one")
        kept[case] = check_name(target, f"node (case {case!r} of the edge from {source!r})")
    return kept
