"""Managed resources applied, reconciled once and settled: `python -m tests.bench.reconciled DB N [thread|process]`.

Each is applied by a call of its own, and its pass runs in a process of its own. The figure is what one of N costs, in
seconds, from the first call to the moment at which nothing is queued or held any more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pi_workflows_nb as pw

LEFT = """
    SELECT (SELECT count(*) FROM controller_queue)
      + (SELECT count(*) FROM controller_resources JOIN leases USING (resource_id) WHERE owner_type IS NOT NULL) AS n
"""
PASSES = "SELECT count(*) AS n FROM events_v WHERE event_type = 'reconcile_finished'"
LOOK_SECONDS = 0.05


def manager() -> pw.ResourceManager:
    """A manager that has nothing to do but to say so."""
    made = pw.ResourceManager("item")

    @made.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(status={"seen": resource.spec["number"]}, conditions=[pw.condition_true("Ready", "Seen")])

    return made


def measure(server: Any, number: int) -> float:
    wanted = manager()
    server.apply(wanted, "first", {"number": 0}).wait_settled()
    started = time.perf_counter()
    for index in range(number):
        server.apply(wanted, f"item-{index:06}", {"number": index})
    while server.sql(LEFT).n[0]:
        time.sleep(LOOK_SECONDS)
    finished = time.perf_counter()
    assert server.sql(PASSES).n[0] == number + 1, "each is reconciled once"
    assert (server.resources()["ready"] == "true").all()
    return (finished - started) / number


def main(path: str, number: int, placement: Any = "thread") -> None:
    database = Path(path)
    server = pw.start(database=database, project=database.parent, server=placement)
    try:
        value = measure(server, number)
    finally:
        server.stop()
    print(json.dumps({"value": value}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
