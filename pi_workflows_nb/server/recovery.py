"""What a new owner does before it serves: end leftover processes, then make what was cut off claimable again.

What becomes of the runs is one transaction, `state.transitions_recovery`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..resource_managers import passes
from ..state import clock_set, resource_recovery, runners, transitions_recovery
from . import logs, processes
from .committer import Transaction

if TYPE_CHECKING:
    from .server import WorkflowServer


async def recover(server: WorkflowServer) -> None:
    """Bring the file into a state from which everything goes on by itself."""
    connection = server.database.connection
    left = runners.leftovers(connection)
    active = dict(
        connection.execute("SELECT run_id, attempt_id FROM node_attempts WHERE status IN ('pending', 'running')")
    )
    gone = [processes.Leftover(one.pid, one.start_identity, one.runner_epoch) for one in left]
    gone += [
        processes.Leftover(pid, identity, "")
        for one in left
        for pid, identity in runners.children(connection, one.runner_epoch)
    ]
    claimed = resource_recovery.abandoned(connection, passes.OWNER)
    gone += [processes.Leftover(None, None, one.reconcile_id) for one in claimed if one.reconcile_id is not None]
    await asyncio.to_thread(processes.end_all_leftovers, gone)
    for leftover in left:
        attempt_id = active.get(leftover.run_id)
        logs.attribute(server.logs / f"{leftover.runner_epoch}.log", [attempt_id] if attempt_id else [])

    def settle(transaction: Transaction) -> None:
        cursor, now = transaction.sql(), transaction.now
        clock_set.catch_up(cursor, now)
        for leftover in left:
            runners.record_exit(cursor, leftover.runner_epoch, "orphaned", None, None, None, now)
        transaction.changed |= transitions_recovery.recover(cursor, now)
        for resource in claimed:
            resource_recovery.release(cursor, resource, now)
        for run_id in server.child_runs.load(cursor):
            server.child_runs.tell(transaction, run_id)

    await server.committer.submit(settle)
    for path in server.transfers.glob("*"):
        path.unlink(missing_ok=True)
