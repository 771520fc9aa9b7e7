"""Claims of managed resources in a queue of a given length: `python -m tests.bench.resources DB QUEUED N`.

A resource is claimed and settled, a commit each, N times; the figure is pairs a second. All resources are due at one
moment, which is the worst for finding the next.

What cannot be measured here is the ratio to other implementations of this store: none of them is a Python package, and
no neighbour of the table has a queue of resources that are claimed under a lease and settled. Where one of them runs,
its figure of the same loop, on the same disk, in turns with this one, is what to divide by.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import managed_resources, resource_values
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire.resource_status import Status

CHECKPOINT_EVERY = 300
"""Pairs; about as often as a server would."""


def fill(database: Database, store: SqliteResourceManagerStore, queued: int) -> None:
    now, status = time.time_ns() // 1_000_000, resource_values.encode_status(Status())
    for begin in range(0, queued, 1000):
        with database.transaction() as connection:
            for number in range(begin, min(queued, begin + 1000)):
                spec = resource_values.encode_spec({"number": number})
                managed_resources.put(connection, store.project_id, "manager", f"item-{number:06}", spec, status, now)
        database.checkpoint()


def main(path: str, queued: int, number: int) -> None:
    database = Database.open(path, 0)
    store = SqliteResourceManagerStore(database, Path(path).parent)
    fill(database, store, queued)
    # The first claim finds out the order of the queue, once in the life of a connection.
    store.settle_claim(store.claim_next(["manager"], "bench", 60_000))
    started = time.perf_counter()
    for done in range(number):
        claim = store.claim_next(["manager"], "bench", 60_000)
        assert store.settle_claim(claim)
        if done % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            database.checkpoint()
    print(json.dumps({"value": number / (time.perf_counter() - started)}))
    database.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
