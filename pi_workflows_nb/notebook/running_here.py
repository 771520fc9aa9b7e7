"""`wf.run_here`: a workflow walked in this kernel, without a server, a file or another process.

Breakpoints stop in it, what nodes print appears under the cell, and what a node raises is raised here, so that `%debug`
stands in its code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pi_workflows_nb.wire.errors import RunCancelled, RunFailed
from pi_workflows_nb.workflows.compiled import compile_workflow
from pi_workflows_nb.workflows.engine import WorkflowEngine
from pi_workflows_nb.workflows.finding import Discovered
from pi_workflows_nb.workflows.local_store import LocalStore

from . import cells

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow
    from pi_workflows_nb.workflows.results import RunResult


def run_here(workflow: Workflow, input: Any, agent: Any, store: LocalStore | None, resume: bool) -> RunResult:
    """What `wf.run_here` gives, and raises."""
    graph = compile_workflow(workflow, Discovered(Path.cwd(), cells.texts()))
    engine = WorkflowEngine(executor=agent, store=LocalStore() if store is None else store)
    result = engine.run(graph, input, resume=resume)
    if result.status in ("failed", "timed_out"):
        raise RunFailed(result.error or result.status) if result.raised is None else result.raised
    if result.status == "cancelled":
        raise RunCancelled(result.error or "the run was cancelled")
    return result
