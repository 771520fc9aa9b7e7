"""The definition of a workflow as it is stored: what a viewer needs to draw it, and what its digest is taken over.

Code is not in it; two workflows with the same graph and different functions share a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire.identities import fingerprint
from pi_workflows_nb.workflows.nodes import DEFAULT_TIMEOUT, Action, Agent, Checkpoint, Node
from pi_workflows_nb.workflows.waiting_nodes import Sleep, WaitEvent

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow
    from pi_workflows_nb.workflows.edges import Edge

SNAPSHOT_SCHEMA: Final = "pi-workflows.definition-snapshot.v1"


def definition_snapshot(workflow: Workflow) -> dict[str, Any]:
    """Give the snapshot of a workflow, a JSON object; the workflow is taken as it is, unchecked.

    Its edges stand in the order in which they were written, which the digest therefore covers.
    """
    snapshot: dict[str, Any] = {
        "schema": SNAPSHOT_SCHEMA,
        "name": workflow.name,
        "startAt": workflow.start_at,
        "nodes": {name: _node(node) for name, node in workflow.nodes.items()},
        "edges": [_edge(edge, workflow.nodes.get(edge.source)) for edge in workflow.edges.values()],
    }
    if workflow.contract_id is not None:
        snapshot["contractId"] = workflow.contract_id
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
    if isinstance(node, WaitEvent):
        out["waitEvent"] = {"name": node.event, "validated": node.validate is not None}
    if isinstance(node, Sleep):
        # null where its function will tell.
        out["sleep"] = {"until": node.until} if node.by_clock else {"seconds": node.seconds}
    if isinstance(node, Action):
        out["actionExecution"] = node.execution
        out["effect"] = {"type": node.effect.type, "recovery": node.effect.recovery}
    return out


def _edge(edge: Edge, source: Node | None) -> dict[str, Any]:
    path = edge.path(source)
    if path is None:
        return {"from": edge.source, "to": edge.target}
    return {"from": edge.source, "switch": {"on": path, "cases": dict(edge.cases)}}
