"""A workflow with all it includes, as one graph: what a run is walked along.

Node ids carry the path of their mount, `fix/inspect` and `outer/fix/inspect`. An edge may lead to a mount, where its
child is entered, and may start at an exit, `fix.done`. For a workflow that includes nothing all of it is as written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pi_workflows_nb.wire.errors import PiWorkflowsError, WorkflowDefinitionError
from pi_workflows_nb.workflows.composition import Exit, Include
from pi_workflows_nb.workflows.edges import Edge
from pi_workflows_nb.workflows.nodes import Node
from pi_workflows_nb.workflows.validation import raise_faults, validate

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow


@dataclass(frozen=True)
class Found:
    """A child that was found by its name or path.

    `identity` is type, ref and revision of its source, `folder` where relative paths of its own includes begin.
    """

    workflow: Workflow
    identity: dict[str, str]
    folder: Path | None = None


Find: TypeAlias = Callable[[str, str, Path | None], Found]
"""How a child is found: from its mount path, the text that names it, and the folder of the file that includes it."""


@dataclass(frozen=True)
class Mount:
    """One place where a child is mounted: `start` is the node, or the mount, that is entered first.

    `identity` is the source of a child that was found by name or path, None for an object of the parent's own source.
    """

    path: str
    workflow: Workflow
    include: Include
    start: str
    identity: dict[str, str] | None


@dataclass
class Compiled:
    """The graph of a run. `exits` leads from a node or an inner exit to the outer one behind it, `mount.exit`."""

    workflow: Workflow
    name: str
    start_at: str
    max_steps: int
    nodes: dict[str, Node]
    edges: dict[str, Edge]
    mounts: dict[str, Mount]
    exits: dict[str, str]

    def exit_of(self, place: str) -> Exit:
        """The declaration behind `mount.exit`."""
        mount, _, name = place.rpartition(".")
        return self.mounts[mount].workflow.exits[name]

    def mounted_sources(self) -> list[dict[str, str]]:
        """Path, type, ref and revision of every mounted child that has a source of its own, by path."""
        found = [{"mountPath": path, **mount.identity} for path, mount in self.mounts.items() if mount.identity]
        return sorted(found, key=lambda source: source["mountPath"])


def compile_workflow(workflow: Workflow, find: Find | None = None, *, checked: bool = True) -> Compiled:
    """Check a workflow and all it includes, and make one graph of it.

    `find` brings children that are given by name or path; without it there may be none. Raises WorkflowDefinitionError,
    naming the mount and the fault, and whatever `find` raises; a workflow that includes itself is refused with the
    chain of mounts. A workflow that was checked when its run was started need not be again.
    """
    graph = Compiled(workflow, workflow.name, workflow.start_at, workflow.max_steps, {}, {}, {}, {})
    _add(graph, workflow, "", None, [(_key(workflow, None), f"{workflow.name!r}")], find, checked)
    return graph


def unchecked(workflow: Workflow) -> Compiled:
    """The graph as far as it can be told now, faults and all: for drawing. Children given by name are left out."""
    try:
        return compile_workflow(workflow)
    except PiWorkflowsError:
        own = (dict(workflow.nodes), dict(workflow.edges))
        return Compiled(workflow, workflow.name, workflow.start_at, workflow.max_steps, *own, {}, {})


def _add(
    graph: Compiled,
    workflow: Workflow,
    path: str,
    folder: Path | None,
    chain: list[tuple[object, str]],
    find: Find | None,
    checked: bool,
) -> None:
    if checked:
        validate(workflow)
    prefix = f"{path}/" if path else ""
    for name, node in workflow.nodes.items():
        graph.nodes[prefix + name] = dataclasses.replace(node, name=prefix + name) if prefix else node
    for source, edge in workflow.edges.items():
        graph.edges[prefix + source] = _qualified(edge, prefix) if prefix else edge
    if path:
        for name, way in workflow.exits.items():
            graph.exits[prefix + way.node] = f"{path}.{name}"
    for name, included in workflow.includes.items():
        mounted = prefix + name
        found = _found(included, mounted, folder, find)
        child = included.workflow if found is None else found.workflow
        assert not isinstance(child, str)
        key = _key(child, found)
        link = f"{child.name!r} (mounted as {mounted!r})"
        if any(key == before for before, _ in chain):
            raise WorkflowDefinitionError(
                f"workflow {child.name!r} includes itself: {' → '.join([*(said for _, said in chain), link])}; "
                "loop with an edge inside one workflow instead"
            )
        start = f"{mounted}/{child.start_at}"
        graph.mounts[mounted] = Mount(mounted, child, included, start, None if found is None else found.identity)
        inner = folder if found is None else found.folder
        try:
            _add(graph, child, mounted, inner, [*chain, (key, link)], find, checked)
        except RecursionError:
            raise WorkflowDefinitionError(f"{mounted!r}: workflows are included too deep in each other") from None
    if checked:
        raise_faults(workflow, _mount_faults(graph, workflow, prefix))


def _key(workflow: Workflow, found: Found | None) -> object:
    return id(workflow) if found is None else (found.identity["type"], found.identity["ref"])


def _found(included: Include, mounted: str, folder: Path | None, find: Find | None) -> Found | None:
    if not isinstance(included.workflow, str):
        return None
    if find is None:
        raise WorkflowDefinitionError(
            f"include {mounted!r}: workflow {included.workflow!r} is given by name, and is looked for when a server "
            "starts the run; give the workflow itself to use it without one"
        )
    return find(mounted, included.workflow, folder)


def _qualified(edge: Edge, prefix: str) -> Edge:
    return dataclasses.replace(
        edge,
        source=prefix + edge.source,
        target=None if edge.target is None else prefix + edge.target,
        cases={case: prefix + target for case, target in edge.cases.items()},
    )


def _mount_faults(graph: Compiled, workflow: Workflow, prefix: str) -> Iterator[str]:
    """What is wrong between a workflow and its children, all of which are known now."""
    for name in workflow.includes:
        child = graph.mounts[prefix + name].workflow
        if not child.exits:
            yield (
                f"include {name!r}: workflow {child.name!r} has no exits; "
                "declare where it is left, as exits={'done': pw.exit('last_node')}"
            )
            continue
        left = {way.node for way in child.exits.values()}
        inner = {m: graph.mounts[f"{prefix}{name}/{m}"].workflow for m in child.includes}
        yield from _ends_inside(name, child, inner, left)
    yield from _unknown_exits(graph, workflow, prefix)


def _ends_inside(name: str, child: Workflow, inner: dict[str, Workflow], left: set[str]) -> Iterator[str]:
    places = [*child.nodes, *(f"{mount}.{way}" for mount, mounted in inner.items() for way in mounted.exits)]
    for place in places:
        if place not in child.edges and place not in left:
            yield (
                f"include {name!r}: workflow {child.name!r} ends at {place!r}, which is behind none of its exits; "
                f"lead an edge on from there, or add an exit, as wf.exit('done', {place!r})"
            )


def _unknown_exits(graph: Compiled, workflow: Workflow, prefix: str) -> Iterator[str]:
    used = [(source, "an edge leaves") for source in workflow.edges]
    used += [(way.node, f"exit {name!r} is behind") for name, way in workflow.exits.items()]
    for place, said in used:
        mount, dot, exit_name = place.partition(".")
        if not dot or mount not in workflow.includes:
            continue
        child = graph.mounts[prefix + mount].workflow
        if exit_name not in child.exits:
            known = ", ".join(repr(f"{mount}.{one}") for one in child.exits)
            yield f"{said} {place!r}, and workflow {child.name!r} has no exit {exit_name!r}; it has {known or 'none'}"
