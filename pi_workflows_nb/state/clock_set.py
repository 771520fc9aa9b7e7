"""What becomes of moments in the file when the machine's wall clock is set.

When a claim ends, a run is due or a node's time is over stands in the file by the wall clock, and is meant as a while
from the moment at which it was written. So it moves along with a clock that is set: no claim is lost by that, and no
run held. Only a run that sleeps until a moment means that moment, and keeps it.

A managed resource rests for a while, too. Only those of the built-in schedules wait for moments, and look at the new
clock at once.

A machine that sleeps sets its clock, too, as those see it who slept with it. It takes no time from a claim or a node,
while a run that sleeps, or waits for an event, does so all the same.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..wire.resource_messages import SCHEDULE

_ASLEEP: Final = (
    "SELECT r.run_id FROM runs r JOIN node_attempts w USING (run_id)"
    " WHERE r.status = 'running' AND w.status = 'waiting'"
)
_UNTIL_A_MOMENT: Final = f"""
    {_ASLEEP} AND EXISTS (
        SELECT 1 FROM workflow_definitions d JOIN blobs b ON b.blob_hash = d.definition_hash
        WHERE d.definition_digest = r.definition_digest
          AND json_type(cast(b.content AS TEXT), '$.nodes."' || w.node_id || '".sleep.until') IS NOT NULL)
"""
_SCHEDULED: Final = """
    controller_resource_id IN (SELECT controller_resource_id FROM controller_resources WHERE controller_name = ?2)"""
_TO_COME: Final = "status IN ('queued', 'parked', 'starting', 'running')"


def move(connection: sqlite3.Connection, by: int, asleep: int = 0) -> None:
    """The clock by which the file was written until now was set forward, or, negative, back, by `by` ms.

    `asleep` ms of them the machine has slept.
    """
    connection.execute(
        "UPDATE workflow_host_state SET heartbeat_at = heartbeat_at + ?1, expires_at = expires_at + ?1"
        " WHERE host_id IS NOT NULL",
        (by,),
    )
    connection.execute(
        "UPDATE leases SET heartbeat_at = heartbeat_at + ?1, expires_at = expires_at + ?1 WHERE owner_id IS NOT NULL",
        (by,),
    )
    connection.execute(
        "UPDATE node_attempts SET deadline_at = deadline_at + ? WHERE status IN ('pending', 'running')", (by,)
    )
    connection.execute(
        "UPDATE node_attempts SET deadline_at = deadline_at + ? WHERE status = 'waiting'"
        f" AND run_id NOT IN ({_UNTIL_A_MOMENT})",
        (by - asleep,),
    )
    connection.execute(
        f"UPDATE run_queue SET available_at = available_at + ? WHERE {_TO_COME} AND run_id NOT IN ({_UNTIL_A_MOMENT})",
        (by - asleep,),
    )
    if by != asleep:
        connection.execute(
            f"UPDATE controller_queue SET available_at = iif({_SCHEDULED}, min(available_at, updated_at), available_at)"
            " + ?1, updated_at = updated_at + ?1",
            (by - asleep, SCHEDULE),
        )


def catch_up(connection: sqlite3.Connection, now: int) -> None:
    """At a start: what a clock wrote that is set back by now counts from now (ms) on. Runs that wait go on waiting."""
    connection.execute(
        "UPDATE leases SET expires_at = expires_at - heartbeat_at + ?1, heartbeat_at = ?1 WHERE heartbeat_at > ?1",
        (now,),
    )
    connection.execute(
        "UPDATE run_queue SET available_at = min(available_at, available_at - updated_at + ?1), updated_at = ?1"
        f" WHERE updated_at > ?1 AND {_TO_COME} AND run_id NOT IN ({_ASLEEP})"
        " AND run_id IN (SELECT run_id FROM runs WHERE status <> 'waiting')",
        (now,),
    )
    connection.execute(
        "UPDATE controller_queue SET available_at = min(available_at, available_at - updated_at + ?1), updated_at = ?1"
        " WHERE updated_at > ?1",
        (now,),
    )
