"""What a drawing of a run needs, read from the file in one snapshot."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire import canonical_json

from .graph_layout import Graph, graph_of
from .stored import message

if TYPE_CHECKING:
    from .reader import Reader

TERMINAL: Final = frozenset({"completed", "failed", "timed_out", "cancelled"})
PATH_STEPS: Final = 5_000


@dataclass
class NodePicture:
    """One node of a run: its newest attempt's status, how many attempts there were, times in milliseconds."""

    status: str
    attempts: int
    started_at: int | None
    finished_at: int | None


@dataclass
class RunPicture:
    """One run, drawn as it stands now; a continuation shows what its parents did too. Times in milliseconds."""

    run_id: str
    workflow: str
    title: str | None
    status: str
    reason: str | None
    error: str | None
    steps: int
    created_at: int
    finished_at: int | None
    graph: Graph
    current: str | None = None
    nodes: dict[str, NodePicture] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)

    @property
    def elapsed(self) -> int:
        """Milliseconds from creation to the end, or until now."""
        end = self.finished_at if self.finished_at is not None else int(time.time() * 1000)
        return max(0, end - self.created_at)


_RUN: Final = """
    SELECT d.workflow_name, r.title, r.finished_at, b.content, e.content,
           (SELECT max(step_index) + 1 FROM run_steps s WHERE s.run_id = r.run_id), root.created_at
    FROM runs r JOIN workflow_definitions d USING (definition_digest) JOIN blobs b ON b.blob_hash = d.definition_hash
    LEFT JOIN blobs e ON e.blob_hash = r.error_hash
    JOIN runs root ON root.run_id = ?2
    WHERE r.run_id = ?1
"""
# With one max() SQLite takes the other columns from the row that holds it: the node's newest attempt.
_ATTEMPTS: Final = """
    WITH RECURSIVE chain(run_id) AS (
        SELECT ?1 UNION SELECT r.parent_run_id FROM runs r JOIN chain USING (run_id)
        WHERE r.lineage_kind = 'continuation')
    SELECT a.node_id, a.status, a.started_at, a.finished_at, count(*), max(a.rowid)
    FROM node_attempts a JOIN chain USING (run_id) GROUP BY a.node_id
"""
_PATH: Final = """
    SELECT a.node_id FROM run_steps s JOIN node_attempts a USING (attempt_id)
    WHERE s.run_id = ? ORDER BY s.step_index DESC LIMIT ?
"""


def read(reader: Reader, run_id: str, root: str, view: dict[str, Any]) -> RunPicture | None:
    """The picture of a run whose chain began with `root`, as its live view says it stands; None where there is none."""
    with reader.snapshot() as connection:
        row = connection.execute(_RUN, (run_id, root)).fetchone()
        if row is None:
            return None
        attempts = connection.execute(_ATTEMPTS, (run_id,)).fetchall()
        path = [node for (node,) in connection.execute(_PATH, (run_id, PATH_STEPS)).fetchall()][::-1]
    workflow, title, finished_at, snapshot, error, steps, created_at = row
    picture = RunPicture(
        run_id=run_id,
        workflow=workflow,
        title=title,
        status=view["status"],
        reason=view["reason"],
        error=message(error),
        steps=steps or 0,
        created_at=created_at,
        finished_at=finished_at if view["status"] in TERMINAL else None,
        graph=graph_of(canonical_json.decode(snapshot)),
    )
    for node, node_status, started, finished, count, _ in attempts:
        picture.nodes[node] = NodePicture(node_status, count, started, finished)
    picture.current = view["currentNode"]
    waits_at = (view["waitingFor"] or {}).get("nodeId")
    if picture.current is None and waits_at in picture.nodes:
        picture.current = waits_at
        picture.nodes[waits_at].status = "waiting"
    if picture.current is not None and (not path or path[-1] != picture.current):
        path.append(picture.current)
    picture.taken = set(itertools.pairwise(path))
    return picture
