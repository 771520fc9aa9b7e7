"""One of several that work resources off: `python -m tests.resource_managers.fighter FILE WORLD NAME SECONDS`.

It prints when it began and ended to work on which key, on the clock that all processes share. In the meantime it wakes
keys, and notes `woke` in their history in the same transaction. The world that is worked on is a folder: a pass holds
a file of its key there.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import resource_events, resource_queue
from pi_workflows_nb.wire.errors import StateUnavailableError


def again(call):
    """The result of a call that found the file busy at first."""
    while True:
        try:
            return call()
        except StateUnavailableError:
            time.sleep(random.uniform(0.0002, 0.001))


def wake(store, key):
    """Enqueue a resource, and keep an event of it, as one change."""
    with store._transaction() as connection:
        now = time.time_ns() // 1_000_000
        resource_queue.enqueue(connection, store.project_id, "m", key, now, now)
        resource_events.record(connection, store.project_id, "m", key, "woke", b"{}", None, now)


def fight(store, world, name, until, say):
    keys = [each.key for each in store.list_resources("m")]
    while time.monotonic() < until:
        claim = again(lambda: store.claim_next(["m"], name, 60_000))
        if claim is None:
            again(lambda: wake(store, random.choice(keys)))
            continue
        held = world / claim.key
        say("begin", claim.key)
        # Whoever else worked on this key now would make this fail.
        os.close(os.open(held, os.O_CREAT | os.O_EXCL))
        for key in (claim.key, *random.sample(keys, 2)):
            if random.random() < 0.5:
                again(lambda key=key: wake(store, key))
        held.unlink()
        say("end", claim.key)
        done = store.settle_claim if random.random() < 0.7 else store.requeue_claim
        assert again(lambda done=done, claim=claim: done(claim))


def main(path, project, name, seconds):
    events = []

    def say(what, key):
        events.append((time.monotonic_ns(), name, what, key))

    with again(lambda: SqliteResourceManagerStore.open(path, project)) as store:
        # Two processes that only wait for each other's locks starve one another.
        store._connection.execute("PRAGMA busy_timeout = 0")
        fight(store, Path(project), name, time.monotonic() + float(seconds), say)
    json.dump(events, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
