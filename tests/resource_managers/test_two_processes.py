"""Two stores in two processes fight for the same keys."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.state.verify import verify
from tests.state.files import NOW

KEYS = 500


def nobody_shared(events):
    """How many passes each process made; a key was begun by one only after the other had ended with it."""
    working, passes = {}, defaultdict(int)
    for moment, name, what, key in events:
        if what == "begin":
            assert key not in working, f"{name} and {working[key]} worked on {key} at {moment}"
            working[key] = name
            passes[name] += 1
        else:
            assert working.pop(key) == name
    assert not working
    return passes


def owed_passes(store):
    """The keys that were woken and not claimed since, by the order of the file's own history."""
    owed = set()
    for event in reversed(store.list_events(limit=1_000_000)):
        if event.type == "woke":
            owed.add(event.key)
        elif event.type == "lease.claimed":
            owed.discard(event.key)
    return owed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_key_is_worked_on_by_two_none_is_lost_and_each_wake_up_leads_to_a_pass(state_file, tmp_path, long_form):
    world = tmp_path / "world"
    world.mkdir()
    database = Database.open(state_file, NOW)
    store = SqliteResourceManagerStore(database, world)
    for number in range(KEYS):
        store.put_resource("m", f"{number:03}", 1)
    database.close()
    command = [sys.executable, "-m", "tests.resource_managers.fighter", state_file, world]
    seconds = "20" if long_form else "4"
    fighters = [subprocess.Popen([*command, name, seconds], stdout=subprocess.PIPE) for name in ("one", "two")]
    told = [json.loads(fighter.communicate(timeout=200)[0]) for fighter in fighters]
    assert [fighter.returncode for fighter in fighters] == [0, 0]
    passes = nobody_shared(sorted(event for each in told for event in each))
    assert all(passes[name] > 20 for name in ("one", "two")), passes

    database = Database.open(state_file, NOW)
    store = SqliteResourceManagerStore(database, world)
    waiting = {entry.key for entry in store.list_queue()}
    owed = owed_passes(store)
    assert owed <= waiting
    assert all(entry.claim_expires_at is None for entry in store.list_queue())
    done = defaultdict(int)
    while claim := store.claim_next(["m"], "last", 60_000):
        assert store.settle_claim(claim)
        done[claim.key] += 1
    assert done.keys() == waiting
    assert set(done.values()) <= {1}
    assert len(store.list_resources()) == KEYS
    assert verify(database.connection) == []
    print(dict(passes), f"{len(owed)} of {len(waiting)} left in the queue were owed a pass")
    database.close()
