"""Checking the whole graph of a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pi_workflows_nb.wire.errors import WorkflowDefinitionError
from pi_workflows_nb.workflows.composition import mount_of
from pi_workflows_nb.workflows.edges import Edge
from pi_workflows_nb.workflows.human_decisions import HumanDecision
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
    raise_faults(workflow, _faults(workflow))


def raise_faults(workflow: Workflow, found: Iterable[str]) -> None:
    """Raise WorkflowDefinitionError with all of the faults of a workflow, if there are any."""
    faults = list(found)
    if not faults:
        return
    label = f"workflow {workflow.name!r}"
    if len(faults) == 1:
        raise WorkflowDefinitionError(f"{label}: {faults[0]}")
    raise WorkflowDefinitionError(f"{label} has {len(faults)} faults:\n" + "\n".join(f"- {fault}" for fault in faults))


def _faults(workflow: Workflow) -> Iterator[str]:
    from pi_workflows_nb.workflows.definition import check_fields

    check_fields(workflow)
    if not workflow.nodes and not workflow.includes:
        yield "it has no nodes; add one, as a function under @wf.compute"
        return
    sound = True
    for name, node in workflow.nodes.items():
        fault = _node_fault(name, node)
        if fault is not None:
            sound = False
            yield fault
    for name in workflow.includes:
        if name in workflow.nodes:
            sound = False
            yield f"{name!r} is a node and an include; give one of them another name"
    entries = [*workflow.nodes, *workflow.includes]
    if workflow.start_at not in entries:
        sound = False
        yield f"start_at={workflow.start_at!r} is not one of its nodes{_instead(workflow.start_at, entries)}"
    for fault in _exit_faults(workflow):
        sound = False
        yield fault
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
    if source in workflow.includes:
        yield (
            f"an edge leaves include {source!r}; a child is left by one of its exits, so write '{source}.<exit>' as "
            "the start of the edge"
        )
    elif mount_of(source) in workflow.includes:
        if edge.decision:
            yield f"a decision_edge leaves {source!r}, which is an exit; use a switch with a path there"
            return
    elif source not in nodes:
        yield (
            f"an edge leaves {source!r}, which is not one of its nodes{_instead(source, nodes)} "
            f"(an edge that is left over goes with `del wf.edges[{source!r}]`)"
        )
    for target in edge.targets:
        if target not in nodes and target not in workflow.includes:
            near = _instead(target, [*nodes, *workflow.includes])
            yield f"the edge from {source!r} leads to {target!r}, which is not one of its nodes{near}"
    if edge.decision:
        yield from _decision_faults(source, nodes.get(source), edge)


def _exit_faults(workflow: Workflow) -> Iterator[str]:
    behind: dict[str, str] = {}
    for name, way in workflow.exits.items():
        if way.node in workflow.includes:
            yield f"exit {name!r} is behind include {way.node!r}; name one of its exits, as '{way.node}.<exit>'"
        elif way.node not in workflow.nodes and mount_of(way.node) not in workflow.includes:
            near = _instead(way.node, workflow.nodes)
            yield f"exit {name!r} is behind {way.node!r}, which is not one of its nodes{near}"
        if way.node in workflow.edges:
            yield (
                f"exit {name!r} is behind {way.node!r}, which an edge leaves as well; "
                "put a node of its own before the exit, or drop the edge"
            )
        if way.node in behind:
            yield f"exits {behind[way.node]!r} and {name!r} are behind the same node {way.node!r}; keep one"
        behind[way.node] = name


def _decision_faults(source: str, node: Node | None, edge: Edge) -> Iterator[str]:
    if node is None:
        return
    if not isinstance(node, Decision | HumanDecision):
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
    leaving: dict[str, list[Edge]] = {}
    for source, edge in workflow.edges.items():
        leaving.setdefault(mount_of(source) or source, []).append(edge)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            for edge in leaving.get(name, ()):
                waiting.extend(edge.targets)
    for name in [*workflow.nodes, *workflow.includes]:
        if name not in reached:
            kind = "node" if name in workflow.nodes else "include"
            yield (
                f"{kind} {name!r} cannot be reached from {workflow.start_at!r}; lead an edge to it, "
                f"or drop it with `del wf.{kind}s[{name!r}]`"
            )


def _instead(name: str, nodes: Iterable[str]) -> str:
    from difflib import get_close_matches

    known = list(nodes)
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; they are {_listed(known[:20])}{', …' if known[20:] else ''}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
