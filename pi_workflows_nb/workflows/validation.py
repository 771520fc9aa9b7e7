"""Checking the whole graph of a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.edges import Edge
from pi_workflows_nb.workflows.nodes import Decision, Node, check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pi_workflows_nb.workflows.definition import Workflow


def validate(workflow: Workflow) -> None:
    """Check that a workflow can run as it is written.

    Raises WorkflowDefinitionError that lists every fault of the graph, each with the node or edge and what to do:
    no nodes, an unknown start, edges from or to unknown nodes, nodes that cannot be reached, a decision's edge without
    a case for a choice, values that are no nodes or edges.
    """
    faults = list(_faults(workflow))
    if not faults:
        return
    label = f"workflow {workflow.name!r}"
    if len(faults) == 1:
        raise WorkflowDefinitionError(f"{label}: {faults[0]}")
    raise WorkflowDefinitionError(f"{label} has {len(faults)} faults:\n" + "\n".join(f"- {fault}" for fault in faults))


def _faults(workflow: Workflow) -> Iterator[str]:
    from pi_workflows_nb.workflows.definition import check_fields

    check_fields(workflow)
    if not workflow.nodes:
        yield "it has no nodes; add one, as a function under @wf.compute"
        return
    sound = True
    for name, node in workflow.nodes.items():
        fault = _node_fault(name, node)
        if fault is not None:
            sound = False
            yield fault
    if workflow.start_at not in workflow.nodes:
        sound = False
        yield f"start_at={workflow.start_at!r} is not one of its nodes{_instead(workflow.start_at, workflow.nodes)}"
    for source, edge in workflow.edges.items():
        for fault in _edge_faults(workflow, source, edge):
            sound = False
            yield fault
    if sound:
        yield from _unreachable(workflow)


def _node_fault(name: object, node: object) -> str | None:
    check_name(name)
    if not isinstance(node, Node):
        return f"node {name!r} is {node!r}; make it with pw.compute(fn) or another kind of node"
    if node.name != name:
        return f"node {node.name!r} stands under the name {name!r}; add nodes with the workflow's own methods"
    return None


def _edge_faults(workflow: Workflow, source: str, edge: object) -> Iterator[str]:
    nodes = workflow.nodes
    if not isinstance(edge, Edge) or edge.source != source:
        yield f"what leaves node {source!r} is {edge!r}; add edges with wf.edge({source!r}, …)"
        return
    if source not in nodes:
        yield (
            f"an edge leaves {source!r}, which is not one of its nodes{_instead(source, nodes)} "
            f"(an edge that is left over goes with `del wf.edges[{source!r}]`)"
        )
    for target in edge.targets:
        if target not in nodes:
            near = _instead(target, nodes)
            yield f"the edge from {source!r} leads to {target!r}, which is not one of its nodes{near}"
    if edge.decision:
        yield from _decision_faults(source, nodes.get(source), edge)


def _decision_faults(source: str, node: Node | None, edge: Edge) -> Iterator[str]:
    if node is None:
        return
    if not isinstance(node, Decision):
        yield f"a decision_edge leaves {source!r}, which is a node of kind {node.kind}; use a switch with a path there"
        return
    missing = [choice for choice in node.choices if choice not in edge.cases]
    if missing:
        yield f"the decision_edge from {source!r} has no case for {_listed(missing)}; add one for every choice"
    unknown = [case for case in edge.cases if case not in node.choices]
    if unknown:
        choices = _listed(node.choices)
        yield f"the decision_edge from {source!r} has cases for {_listed(unknown)}; its choices are {choices}"


def _unreachable(workflow: Workflow) -> Iterator[str]:
    reached: set[str] = set()
    waiting = [workflow.start_at]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            edge = workflow.edges.get(name)
            waiting.extend(edge.targets if edge is not None else ())
    for name in workflow.nodes:
        if name not in reached:
            yield (
                f"node {name!r} cannot be reached from {workflow.start_at!r}; lead an edge to it, "
                f"or drop it with `del wf.nodes[{name!r}]`"
            )


def _instead(name: str, nodes: Iterable[str]) -> str:
    from difflib import get_close_matches

    known = list(nodes)
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; they are {_listed(known[:20])}{', …' if known[20:] else ''}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
