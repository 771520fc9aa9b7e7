"""Which trees of runs may leave a file, and how one leaves: a root with everything that continues or restarts it.

A tree goes as a whole, with all rows that are its own, or stays. The rows are deleted one table after the other, with
SQLite's checks of references off: no index leads from a root to its runs or from a scope to its attempts, so that the
checks would scan whole tables for each row. What would dangle keeps a tree in the file instead.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TREE: Final = """
    WITH RECURSIVE tree(run_id) AS (
        SELECT ?1 UNION SELECT r.run_id FROM runs r JOIN tree ON r.parent_run_id = tree.run_id
    )
    SELECT json_group_array(run_id) FROM tree
"""
_CANDIDATES: Final = """
    SELECT rowid, run_id FROM runs WHERE rowid > ? AND parent_run_id IS NULL AND finished_at < ? ORDER BY rowid LIMIT ?
"""
_RUNS: Final = "(SELECT value FROM json_each(:runs))"
_OWNED_IDS: Final = "(SELECT value FROM json_each(:owned))"
_ATTEMPTS: Final = f"(SELECT attempt_id FROM node_attempts WHERE run_id IN {_RUNS})"
_SCOPES: Final = f"(SELECT scope_id FROM workflow_settings WHERE origin_run_id IN {_RUNS})"
_DECISIONS: Final = f"(SELECT decision_id FROM human_decisions WHERE run_id IN {_RUNS})"
_EFFECTS: Final = f"""(SELECT effect_id FROM effects WHERE source_resource_id IN
    (SELECT resource_id FROM runs WHERE run_id IN {_RUNS}))"""
_OWNED: Final = f"""
    SELECT json_group_array(resource_id) FROM (
        SELECT resource_id FROM runs WHERE run_id IN {_RUNS}
        UNION ALL SELECT resource_id FROM effects WHERE effect_id IN {_EFFECTS}
        UNION ALL SELECT resource_id FROM workflow_settings WHERE origin_run_id IN {_RUNS}
        UNION ALL SELECT resource_id FROM workflow_follow_ups WHERE run_id IN {_RUNS}
        UNION ALL SELECT resource_id FROM human_decisions WHERE run_id IN {_RUNS}
        UNION ALL SELECT resource_id FROM session_segments WHERE run_id IN {_RUNS}
    )
"""

_PROTECTIONS: Final = {
    "a run that is not over, or not for long enough": f"""
        SELECT 1 FROM runs r LEFT JOIN run_queue q USING (run_id) WHERE r.run_id IN {_RUNS} AND (
            r.status IN ('queued', 'running') OR (r.status = 'waiting' AND q.status IS NOT 'done')
            OR r.finished_at >= :before)""",
    "a live queue row": f"""
        SELECT 1 FROM run_queue WHERE run_id IN {_RUNS} AND status IN ('queued', 'starting', 'running', 'parked')""",
    "a live runner": f"""
        SELECT 1 FROM run_workers WHERE run_id IN {_RUNS} AND status IN ('starting', 'ready', 'running')""",
    "an open turn": f"SELECT 1 FROM workflow_turns WHERE run_id IN {_RUNS} AND state = 'started'",
    "a pending message": f"SELECT 1 FROM workflow_messages WHERE run_id IN {_RUNS} AND status = 'pending'",
    "a pending interaction": f"""
        SELECT 1 FROM interactive_requests i WHERE attempt_id IN {_ATTEMPTS} AND (status = 'pending' OR EXISTS (
            SELECT 1 FROM interactive_submissions s WHERE s.request_id = i.request_id AND s.outcome = 'validating'))""",
    "an open decision": f"""
        SELECT 1 FROM human_decisions WHERE run_id IN {_RUNS}
        AND decision_id NOT IN (SELECT decision_id FROM human_decision_resolutions)""",
    "a follow-up that was not delivered": f"""
        SELECT 1 FROM workflow_follow_ups f WHERE run_id IN {_RUNS} AND status = 'queued' AND NOT EXISTS (
            SELECT 1 FROM workflow_messages m
            WHERE m.kind = 'followUp' AND m.source_id = f.follow_up_id AND m.status = 'sent')""",
    "a session that is being recorded": f"""
        SELECT 1 FROM session_segments WHERE run_id IN {_RUNS} AND status = 'recording'""",
    "an effect that is not settled": f"""
        SELECT 1 FROM effects WHERE effect_id IN {_EFFECTS} AND status IN ('pending', 'applying', 'ambiguous')""",
    "a live claim": f"SELECT 1 FROM leases WHERE resource_id IN {_OWNED_IDS} AND expires_at > :now",
    "a managed resource that it works for": f"""
        SELECT 1 FROM controller_workflows WHERE run_id IN {_RUNS} OR reserved_run_id IN {_RUNS}""",
    "a reference from outside": f"""
        SELECT 1 FROM run_steps WHERE attempt_id IN {_ATTEMPTS} AND run_id NOT IN {_RUNS}
        UNION ALL SELECT 1 FROM continuations WHERE decision_id IN {_DECISIONS}
          AND (parent_run_id NOT IN {_RUNS} OR continuation_run_id NOT IN {_RUNS})
        UNION ALL SELECT 1 FROM continuations WHERE decision_id NOT IN {_DECISIONS}
          AND (parent_run_id IN {_RUNS} OR continuation_run_id IN {_RUNS})
        UNION ALL SELECT 1 FROM workflow_settings WHERE origin_run_id IN {_RUNS} AND active_run_id NOT IN {_RUNS}
        UNION ALL SELECT 1 FROM workflow_settings WHERE active_run_id IN {_RUNS} AND origin_run_id NOT IN {_RUNS}
        UNION ALL SELECT 1 FROM channel_messages WHERE decision_id IN {_DECISIONS}""",
}
"""What keeps a tree in the file, each with a query that finds it."""

_DELETIONS: Final = (
    f"DELETE FROM workflow_updates WHERE attempt_id IN {_ATTEMPTS}",
    f"DELETE FROM attempt_entries WHERE attempt_id IN {_ATTEMPTS}",
    f"""DELETE FROM interactive_submissions WHERE request_id IN
        (SELECT request_id FROM interactive_requests WHERE attempt_id IN {_ATTEMPTS})""",
    f"DELETE FROM interactive_requests WHERE attempt_id IN {_ATTEMPTS}",
    f"DELETE FROM workflow_turns WHERE run_id IN {_RUNS}",
    f"DELETE FROM workflow_messages WHERE run_id IN {_RUNS}",
    f"DELETE FROM session_entries WHERE run_id IN {_RUNS}",
    f"DELETE FROM session_events WHERE run_id IN {_RUNS}",
    f"DELETE FROM session_segments WHERE run_id IN {_RUNS}",
    f"DELETE FROM continuations WHERE decision_id IN {_DECISIONS}",
    f"DELETE FROM human_decision_submissions WHERE decision_id IN {_DECISIONS}",
    f"DELETE FROM human_decision_resolutions WHERE decision_id IN {_DECISIONS}",
    f"DELETE FROM human_decisions WHERE run_id IN {_RUNS}",
    f"DELETE FROM workflow_setting_changes WHERE scope_id IN {_SCOPES}",
    f"DELETE FROM workflow_settings WHERE origin_run_id IN {_RUNS}",
    f"DELETE FROM workflow_follow_ups WHERE run_id IN {_RUNS}",
    f"""DELETE FROM worker_messages WHERE worker_epoch IN
        (SELECT worker_epoch FROM run_workers WHERE run_id IN {_RUNS})""",
    f"DELETE FROM run_workers WHERE run_id IN {_RUNS}",
    f"DELETE FROM effect_attempts WHERE effect_id IN {_EFFECTS}",
    f"DELETE FROM effects WHERE effect_id IN {_EFFECTS}",
    f"DELETE FROM viewer_session_checkpoints WHERE run_id IN {_RUNS}",
    f"DELETE FROM viewer_deltas WHERE run_id IN {_RUNS}",
    f"DELETE FROM viewer_runs WHERE run_id IN {_RUNS}",
    f"DELETE FROM run_view_content WHERE run_id IN {_RUNS}",
    f"DELETE FROM run_sources WHERE run_id IN {_RUNS}",
    f"DELETE FROM run_bindings WHERE run_id IN {_RUNS}",
    f"DELETE FROM run_queue WHERE run_id IN {_RUNS}",
    f"DELETE FROM host_commands WHERE run_id IN {_RUNS}",
    f"UPDATE session_terminal_views SET cleared_run_id = NULL WHERE cleared_run_id IN {_RUNS}",
    f"DELETE FROM run_steps WHERE run_id IN {_RUNS}",
    f"DELETE FROM node_attempts WHERE run_id IN {_RUNS}",
    f"DELETE FROM runs WHERE run_id IN {_RUNS}",
    f"DELETE FROM events WHERE resource_id IN {_OWNED_IDS}",
    f"DELETE FROM leases WHERE resource_id IN {_OWNED_IDS}",
    f"DELETE FROM resources WHERE resource_id IN {_OWNED_IDS}",
)
_TANGLED: Final = """
    SELECT r.root_run_id, p.root_run_id FROM runs r LEFT JOIN runs p ON p.run_id = r.parent_run_id
    WHERE r.root_run_id <> coalesce(p.root_run_id, r.run_id)
    UNION ALL
    SELECT r.root_run_id, o.root_run_id FROM node_attempts a
    JOIN workflow_settings s ON s.scope_id = a.settings_scope_id
    JOIN runs r ON r.run_id = a.run_id JOIN runs o ON o.run_id = s.origin_run_id WHERE r.root_run_id <> o.root_run_id
"""


@dataclass(frozen=True)
class Tree:
    """A tree of runs as it stands: its runs, and what keeps it in the file, None when nothing does."""

    root: str
    runs: list[str]
    kept_by: str | None


@dataclass(frozen=True)
class Deleted:
    """What has left with a tree: the number of its runs, and the ids of its attempts, whose logs may go as well."""

    runs: int
    attempts: list[str]


def candidates(
    connection: sqlite3.Connection, before: int, after: int, limit: int, tangled: frozenset[str], now: int
) -> list[tuple[int, Tree]]:
    """Up to `limit` trees whose roots ended before a moment (ms), each with its position, in the order of positions.

    `after` is the last position that was seen. They are judged as they stand now, and judged again when they are
    deleted.
    """
    found = connection.execute(_CANDIDATES, (after, before, limit)).fetchall()
    return [(position, look_at(connection, root, before, now, tangled)) for position, root in found]


def look_at(
    connection: sqlite3.Connection, root: str, before: int, now: int, tangled: frozenset[str] = frozenset()
) -> Tree:
    """The tree of a root, and what keeps it in the file."""
    listed, given = _parameters(connection, root, before, now)
    if root in tangled:
        return Tree(root, listed, "a reference from outside")
    for reason, query in _PROTECTIONS.items():
        if connection.execute(f"{query} LIMIT 1", given).fetchone() is not None:
            return Tree(root, listed, reason)
    return Tree(root, listed, None)


def tangled(connection: sqlite3.Connection) -> frozenset[str]:
    """Roots of runs that do not descend from the root they name, or share settings across trees: a damaged file."""
    return frozenset(root for row in connection.execute(_TANGLED) for root in row if root is not None)


def delete(connection: sqlite3.Connection, root: str, before: int, now: int) -> Deleted | None:
    """Delete a tree if nothing keeps it, within a transaction of a connection that does not check references."""
    if look_at(connection, root, before, now).kept_by is not None:
        return None
    listed, given = _parameters(connection, root, before, now)
    attempts = [name for (name,) in connection.execute(_ATTEMPTS[1:-1], given)]
    for statement in _DELETIONS:
        connection.execute(statement, given)
    return Deleted(len(listed), attempts)


def delete_definitions(connection: sqlite3.Connection) -> int:
    """Delete the definitions that no run has."""
    return connection.execute(
        "DELETE FROM workflow_definitions WHERE definition_digest NOT IN (SELECT definition_digest FROM runs)"
    ).rowcount


def without_row(connection: sqlite3.Connection, attempts: list[str]) -> Iterator[str]:
    """Those of some ids that are no attempt of the file."""
    given = json.dumps(attempts)
    known = connection.execute(
        "SELECT attempt_id FROM node_attempts WHERE attempt_id IN (SELECT value FROM json_each(?))", (given,)
    )
    yield from set(attempts).difference(name for (name,) in known)


def _parameters(
    connection: sqlite3.Connection, root: str, before: int, now: int
) -> tuple[list[str], dict[str, str | int]]:
    (listed,) = connection.execute(_TREE, (root,)).fetchone()
    given: dict[str, str | int] = {"before": before, "now": now, "runs": listed}
    (given["owned"],) = connection.execute(_OWNED, given).fetchone()
    return json.loads(listed), given
