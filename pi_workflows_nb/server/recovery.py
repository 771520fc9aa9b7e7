"""What a new owner does before it serves: end leftover processes, then make what was cut off claimable again.

Effects are read before anything is decided: a run whose effect is uncertain is settled or parked by its next claim, in
the same transaction. A committed boundary is never executed again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..state import runners, runs, transitions
from . import logs, processes
from .committer import Transaction

if TYPE_CHECKING:
    from .server import WorkflowServer

_CUT_OFF = "SELECT run_id FROM run_queue JOIN runs USING (run_id) WHERE run_queue.status IN ('starting', 'running')"


async def recover(server: WorkflowServer) -> None:
    """Bring the file into a state from which everything goes on by itself."""
    connection = server.database.connection
    left = runners.leftovers(connection)
    active = dict(
        connection.execute("SELECT run_id, attempt_id FROM node_attempts WHERE status IN ('pending', 'running')")
    )
    gone = [processes.Leftover(one.pid, one.start_identity, one.runner_epoch) for one in left]
    await asyncio.to_thread(processes.end_all_leftovers, gone)
    for leftover in left:
        logs.attribute(server.logs / f"{leftover.runner_epoch}.log", active.get(leftover.run_id))

    def park(transaction: Transaction) -> None:
        cursor, now = transaction.sql(), transaction.now
        for leftover in left:
            runners.record_exit(cursor, leftover.runner_epoch, "orphaned", None, None, None, now)
        for (run_id,) in cursor.execute(_CUT_OFF).fetchall():
            run = runs.read(cursor, run_id)
            if run.status in ("queued", "running"):
                transitions.park(cursor, run, now, available_at=now)
                transaction.changed.add(run_id)

    await server.committer.submit(park)
    for path in server.transfers.glob("*"):
        path.unlink(missing_ok=True)
