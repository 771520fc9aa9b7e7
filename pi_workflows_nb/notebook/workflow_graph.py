"""The definition of a workflow to look at, before anything runs: its graph in every form, and what is suspicious."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pi_workflows_nb.workflows import findings, sources
from pi_workflows_nb.workflows.compiled import compile_workflow
from pi_workflows_nb.workflows.finding import Discovered
from pi_workflows_nb.workflows.nodes import Node
from pi_workflows_nb.workflows.snapshot import definition_snapshot

from . import cells, mermaid, representations
from .arrays import TEXT
from .graph_layout import graph_of

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.compiled import Compiled
    from pi_workflows_nb.workflows.definition import Workflow


class Findings(pd.DataFrame):
    """What `wf.check()` found: columns level (note, warning), finding, place, what, and bytes of variables."""

    def __repr__(self) -> str:
        if self.empty:
            return "The workflow is sound; its functions carry no variables along."
        lines = []
        for level, finding, place, what, size in self.itertuples(index=False, name=None):
            about = "" if pd.isna(size) else f" ({size:,} bytes)"
            lines.append(f"{level:<8}{finding:<15}{place}{about}: {what}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            html: str = pd.DataFrame(self).to_html(index=False, escape=True, border=0)
        return html


class WorkflowGraph:
    """The graph of a workflow with all it includes, as `wf.graph()` gives it; as the last line of a cell a drawing.

    `text` has a line for each node, `mermaid` is a flow chart in that language; both are `str`.
    Raises WorkflowDefinitionError for a workflow that could not be started.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._compiled = _compiled(workflow)
        self._snapshot = definition_snapshot(self._compiled)
        self._drawn = graph_of(self._snapshot)

    @property
    def text(self) -> str:
        """A line for the workflow, and one for each node with the ways out of it."""
        return representations.workflow_text(self._compiled.name, self._drawn)

    @property
    def mermaid(self) -> str:
        """A flow chart in the language Mermaid, from top to bottom."""
        return mermaid.of_graph(self._drawn)

    @property
    def nodes(self) -> pd.DataFrame:
        """One row a node, in reading order; index `node`, its id.

        `kind`; `mount`, the path of the included workflow that it belongs to, empty for the workflow's own; `timeout`
        in seconds, missing where there is none or a function says it; `tries` at most; `effect` and `recovery` of
        actions.
        """
        nodes = [(name, self._compiled.nodes[name]) for name in self._drawn.nodes]
        columns = {
            "kind": _texts(node.kind for _, node in nodes),
            "mount": _texts(name.rpartition("/")[0] for name, _ in nodes),
            "timeout": pd.array([_seconds(node) for _, node in nodes], dtype="Float64"),
            "tries": pd.array([1 if node.retries is None else node.retries.times for _, node in nodes], dtype="Int64"),
            "effect": _texts(None if node.effect is None else node.effect.type for _, node in nodes),
            "recovery": _texts(None if node.effect is None else node.effect.recovery for _, node in nodes),
        }
        return pd.DataFrame(columns, index=pd.Index(_texts(name for name, _ in nodes), name="node"))

    @property
    def edges(self) -> pd.DataFrame:
        """One row a way from a node to another, through whatever mounts lie between them.

        `source`, `target`; `path` and `case` of a switch, missing for a plain edge; `exit`, `mount.exit`, where the
        way leaves an included workflow.
        """
        rows: list[tuple[str, str, str | None, str | None, str | None]] = []
        for edge in self._snapshot["edges"]:
            left = edge.get("exit")
            if "switch" in edge:
                path, cases = edge["switch"]["on"], edge["switch"]["cases"]
                rows += [(edge["from"], target, path, case, left) for case, target in cases.items()]
            else:
                rows.append((edge["from"], edge["to"], None, None, left))
        names = ("source", "target", "path", "case", "exit")
        return pd.DataFrame({name: _texts(row[at] for row in rows) for at, name in enumerate(names)})

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {
            "text/plain": self.text,
            "text/html": representations.workflow_html(self._compiled.name, self._drawn),
            mermaid.MIME: self.mermaid,
        }


def check_workflow(workflow: Workflow) -> Findings:
    """What `wf.check()` gives, and raises."""
    found = findings.find(_compiled(workflow), sources.captures(workflow))
    return Findings(
        {
            "level": pd.Categorical([one.level for one in found], findings.LEVELS, ordered=True),
            "finding": pd.Categorical([one.kind for one in found], findings.KINDS),
            "place": _texts(one.place for one in found),
            "what": _texts(one.message for one in found),
            "bytes": pd.array([one.bytes for one in found], dtype="Int64"),
        }
    )


def _compiled(workflow: Workflow) -> Compiled:
    return compile_workflow(workflow, Discovered(Path.cwd(), cells.texts()))


def _texts(values: Any) -> Any:
    return pd.array(list(values), dtype=TEXT)


def _seconds(node: Node) -> float | None:
    return None if node.timeout is None or callable(node.timeout) else float(node.timeout)
