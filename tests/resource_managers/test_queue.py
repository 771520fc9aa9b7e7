"""Who is worked on next, and what a pass leaves in the queue."""

from __future__ import annotations

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import managed_resources, resource_values
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError
from pi_workflows_nb.wire.resource_status import Status
from tests.resource_managers.conftest import LEASE
from tests.state.files import NOW


def claim(store, *managers, exclude=()):
    found = store.claim_next(managers, "owner", LEASE, exclude)
    return found and (found.resource_manager, found.key)


def fill(store, number, manager="manager"):
    """Many resources at one moment, in one transaction."""
    status = resource_values.encode_status(Status())
    with store._database.transaction() as connection:
        for index in range(number):
            managed_resources.put(connection, store.project_id, manager, f"{index:06}", b"1", status, NOW)


def entry(store):
    (found,) = store.list_queue()
    return found.available_at - NOW, found.queue_version, found.consecutive_errors


def test_time_then_manager_then_key(store, clock):
    for manager, key, due in (("b", "1", 0), ("a", "2", 0), ("a", "1", 5), ("a", "é", -1), ("c", "0", -9)):
        store.put_resource(manager, key, 1)
        store.enqueue(manager, key, NOW + due)
    clock.now = NOW - 100
    assert claim(store, "a", "b") is None
    clock.now = NOW + 5
    # Everything was enqueued at NOW when it was put; an enqueueing for later does not delay it.
    assert [each.key for each in store.list_queue()] == ["0", "é", "1", "2", "1"]
    taken = [claim(store, "b", "a", "nobody") for _ in range(5)]
    assert taken == [("a", "é"), ("a", "1"), ("a", "2"), ("b", "1"), None]


def test_a_later_time_is_waited_for(store, clock, claimed):
    assert store.requeue_claim(claimed, NOW + 10)
    clock.now = NOW + 9
    assert claim(store, "manager") is None
    clock.now = NOW + 10
    assert claim(store, "manager") == ("manager", "key")


def test_exclusions_and_managers_without_name(store):
    for key in "123":
        store.put_resource("a", key, 1)
        store.put_resource("b", key, 1)
    assert claim(store) is None
    assert claim(store, "a", exclude=[("a", "1"), ("b", "2")]) == ("a", "2")
    assert claim(store, "a", "b", exclude=[("a", key) for key in "123"]) == ("b", "1")
    assert claim(store, "a", exclude=[("a", key) for key in "123"]) is None


def test_what_is_claimed_is_not_claimed_again_before_it_expires(store, clock, claimed):
    assert claim(store, "manager") is None
    assert store.list_queue()[0].claim_expires_at == NOW + LEASE == claimed.expires_at
    clock.now += LEASE - 1
    assert claim(store, "manager") is None
    clock.now += 1
    second = store.claim_next(["manager"], "owner", LEASE)
    assert (second.generation, second.resource_version) == (2, 3)


def test_a_settled_row_goes_unless_it_was_woken(store, claimed):
    assert (claimed.queue_version, claimed.consecutive_errors) == (1, 0)
    store.enqueue("manager", "key", NOW + 5)
    assert store.settle_claim(claimed)
    assert entry(store) == (0, 2, 0)
    again = store.claim_next(["manager"], "owner", LEASE)
    assert store.settle_claim(again)
    assert store.list_queue() == []
    store.enqueue("manager", "key")
    assert entry(store) == (0, 1, 0)


def test_each_wake_up_during_work_leads_to_another_pass(store, claimed):
    wakers = [
        lambda: store.enqueue("manager", "key"),
        lambda: store.put_resource("manager", "key", {"size": 2}),
        lambda: store.request_deletion("manager", "key"),
    ]
    for wake in wakers:
        wake()
        assert store.settle_claim(claimed)
        claimed = store.claim_next(["manager"], "owner", LEASE)
        assert claimed is not None
    assert store.settle_claim(claimed)
    assert store.claim_next(["manager"], "owner", LEASE) is None


@pytest.mark.parametrize(("woken_at", "asked", "wanted"), [(None, 50, 50), (7, 50, 0), (None, -3, -3), (7, -3, -3)])
def test_a_requeue_takes_the_time_asked_for_or_that_of_a_wake_up(store, claimed, woken_at, asked, wanted):
    if woken_at is not None:
        store.enqueue("manager", "key", NOW + woken_at)
    assert store.requeue_claim(claimed, NOW + asked)
    assert entry(store) == (wanted, 2 if woken_at is None else 3, 0)


def test_errors_are_counted_in_a_row(store, database, clock):
    store.put_resource("manager", "key", 1)
    for error, count in (("first", 1), ("second", 2), (None, 0), ("third", 1)):
        assert store.requeue_claim(store.claim_next(["manager"], "owner", LEASE), error=error)
        assert store.list_queue()[0].consecutive_errors == count
        assert store.claim_next(["manager"], "owner", LEASE).consecutive_errors == count
        clock.now += LEASE
        row = database.connection.execute(
            "SELECT CAST(content AS TEXT) FROM controller_queue LEFT JOIN blobs ON blob_hash = last_error_hash"
        ).fetchone()
        assert row == (error,)


def test_a_pass_may_end_late_but_not_after_another_began(store, clock, claimed):
    clock.now += 10 * LEASE
    assert not store.renew_claim(claimed, LEASE)
    assert store.settle_claim(claimed)
    assert not store.settle_claim(claimed)
    store.enqueue("manager", "key")
    first = store.claim_next(["manager"], "owner", LEASE)
    clock.now += LEASE
    second = store.claim_next(["manager"], "owner", LEASE)
    assert not store.requeue_claim(first)
    assert not store.settle_claim(first)
    assert store.renew_claim(second, LEASE)


def test_a_renewed_claim_lasts_from_now_on(store, clock, claimed):
    clock.now += LEASE - 1
    assert store.renew_claim(claimed, 2 * LEASE)
    assert claimed.expires_at == clock.now + 2 * LEASE == store.list_queue()[0].claim_expires_at
    assert store.get_resource("manager", "key").resource_version == 2
    clock.now += 2 * LEASE
    assert not store.renew_claim(claimed, LEASE)


def test_only_what_is_there_is_enqueued(store):
    with pytest.raises(ManagedResourceNotFoundError):
        store.enqueue("manager", "key")


def test_a_queue_row_that_was_lost_comes_back_with_the_end_of_a_pass(store, database, claimed):
    database.connection.execute("DELETE FROM controller_queue")
    assert store.requeue_claim(claimed, NOW + 5)
    assert entry(store) == (5, 1, 0)


def test_changes_of_other_connections_are_seen(store, state_file, tmp_path, clock):
    store.put_resource("manager", "a", 1)
    assert claim(store, "manager") == ("manager", "a")
    other = SqliteResourceManagerStore(Database.open(state_file, NOW), tmp_path, clock=clock)
    other.put_resource("manager", "b", 1)
    assert claim(store, "manager") == ("manager", "b")
    other.put_resource("manager", "c", 1)
    assert claim(other, "manager") == ("manager", "c")
    assert claim(store, "manager") is None
    other._database.close()


def test_a_rolled_back_change_is_forgotten(store, database):
    store.put_resource("manager", "a", 1)
    assert claim(store, "manager") == ("manager", "a")

    def fail():
        with database.transaction() as connection:
            status = resource_values.encode_status(Status())
            managed_resources.put(connection, store.project_id, "manager", "b", b"1", status, NOW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert claim(store, "manager") is None


def instructions(store, call):
    """How many hundreds of SQLite's virtual instructions a call takes."""
    count = 0

    def tick():
        nonlocal count
        count += 1

    store._connection.set_progress_handler(tick, 100)
    try:
        call()
    finally:
        store._connection.set_progress_handler(None, 0)
    return count


def test_a_pass_costs_the_same_however_long_the_queue_is(store):
    """Also where all is due at one moment, and where what nobody works off stands before."""

    def one_pass():
        assert store.settle_claim(store.claim_next(["manager"], "owner", LEASE))

    costs = []
    for number in (50, 3000):
        fill(store, number, "abandoned")
        fill(store, number)
        one_pass()
        costs.append(instructions(store, one_pass))
    assert costs[1] <= costs[0] + 2
