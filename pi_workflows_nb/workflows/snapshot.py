"""The definition of a workflow as it is stored: what a viewer needs to draw it, and what its digest is taken over.

Code is not in it; two workflows with the same graph and different functions share a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.identities import fingerprint
from pi_workflows_nb.workflows.compiled import Compiled, Mount, unchecked
from pi_workflows_nb.workflows.composition import mount_of
from pi_workflows_nb.workflows.human_decisions import HumanDecision
from pi_workflows_nb.workflows.nodes import DEFAULT_TIMEOUT, Action, Agent, Checkpoint, Node, SettingsRoute
from pi_workflows_nb.workflows.waiting_nodes import Sleep, WaitEvent

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow
    from pi_workflows_nb.workflows.edges import Edge
    from pi_workflows_nb.workflows.settings import WorkflowSettings

SNAPSHOT_SCHEMA: Final = "pi-workflows.definition-snapshot.v1"


def definition_snapshot(workflow: Workflow | Compiled) -> dict[str, Any]:
    """Give the snapshot of a workflow, a JSON object; the workflow is taken as it is, unchecked.

    Its edges stand in the order in which they were written, which the digest therefore covers. Those of a workflow that
    includes others lead from node to node, through the mounts; `composition` says which nodes lie in which mount.
    """
    graph = workflow if isinstance(workflow, Compiled) else unchecked(workflow)
    snapshot: dict[str, Any] = {
        "schema": SNAPSHOT_SCHEMA,
        "name": graph.name,
        "startAt": _entered(graph, graph.start_at),
        "nodes": {name: _node(node) for name, node in graph.nodes.items()},
        "edges": [_edge(graph, edge) for edge in graph.edges.values()],
    }
    if graph.mounts:
        for name, described in snapshot["nodes"].items():
            path, _, local = name.rpartition("/")
            if path:
                described |= {"mountPath": path, "localNodeId": local}
        snapshot["composition"] = {"mounts": [_mount(graph, mount) for mount in graph.mounts.values()]}
    scopes = [
        {"path": path, **_settings(mount.workflow.settings)}
        for path, mount in sorted(graph.mounts.items())
        if mount.workflow.settings is not None
    ]
    if graph.workflow.settings is not None:
        snapshot["settings"] = _settings(graph.workflow.settings)
    if scopes:
        snapshot["settingsScopes"] = scopes
    if graph.workflow.contract_id is not None:
        snapshot["contractId"] = graph.workflow.contract_id
    return snapshot


def definition_digest(snapshot: dict[str, Any]) -> bytes:
    """The SHA-256 (32 bytes) of a snapshot's canonical JSON."""
    return fingerprint(snapshot)


def _node(node: Node) -> dict[str, Any]:
    out: dict[str, Any] = {"nodeType": node.type}
    if node.timeout is None:
        out["timeoutMs"] = None
    elif not callable(node.timeout) and node.timeout != DEFAULT_TIMEOUT:
        out["timeoutMs"] = max(1, round(1000 * node.timeout))
    if node.status_detail is not None:
        out["statusDetail"] = node.status_detail
    if isinstance(node, Agent) and node.expected_output is not None:
        out["expectedOutput"] = node.expected_output
    if isinstance(node, Checkpoint) and node.summary is not None:
        out["summary"] = node.summary
    if isinstance(node, SettingsRoute):
        out["settingsRoute"] = True
    if isinstance(node, HumanDecision):
        after = None if node.seconds is None else round(1000 * node.seconds)
        out["humanDecision"] = {
            "audience": node.audience,
            "choices": node.choices,
            "default": node.default,
            "timeoutMs": after,
        }
    if isinstance(node, WaitEvent):
        out["waitEvent"] = {"name": node.event, "validated": node.validate is not None}
    if isinstance(node, Sleep):
        # null where its function will tell.
        out["sleep"] = {"until": node.until} if node.by_clock else {"seconds": node.seconds}
    if isinstance(node, Action):
        out["actionExecution"] = node.execution
        out["effect"] = {"type": node.effect.type, "recovery": node.effect.recovery}
    return out


def _settings(settings: WorkflowSettings) -> dict[str, Any]:
    """The rights, which whoever serves a change checks, and whether the workflow's own code looks at it as well."""
    validated = settings.parse is not None or settings.validate_change is not None
    return {"paths": [rule.told() for rule in settings.paths], "validated": validated}


def _edge(graph: Compiled, edge: Edge) -> dict[str, Any]:
    path, source = edge.path(graph.nodes.get(edge.source)), _left(graph, edge.source)
    told: dict[str, Any] = {"from": source}
    if source != edge.source:
        told["exit"] = edge.source
    if path is None:
        return {**told, "to": None if edge.target is None else _entered(graph, edge.target)}
    return {
        **told,
        "switch": {"on": path, "cases": {case: _entered(graph, target) for case, target in edge.cases.items()}},
    }


def _entered(graph: Compiled, place: str) -> str:
    """The node at which a place begins."""
    while place in graph.mounts:
        place = graph.mounts[place].start
    return place


def _left(graph: Compiled, place: str) -> str:
    """The node behind which an exit lies."""
    while (mount := mount_of(place)) in graph.mounts:
        way = graph.mounts[mount].workflow.exits.get(place.rpartition(".")[2]) if mount else None
        if way is None:
            break
        place = f"{mount}/{way.node}"
    return place


def _mount(graph: Compiled, mount: Mount) -> dict[str, Any]:
    child = mount.workflow
    told: dict[str, Any] = {
        "path": mount.path,
        "workflow": child.name,
        "startAt": _entered(graph, mount.start),
        "maxSteps": child.max_steps,
        "exits": {name: _left(graph, f"{mount.path}.{name}") for name in child.exits},
    }
    if child.contract_id is not None:
        told["contractId"] = child.contract_id
    return told
