"""Ending the life of a resource, and beginning another under its key."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError, StaleClaimError
from tests.resource_managers.conftest import LEASE


def end(store, key="key"):
    """Delete a resource as its manager would, with an effect and a child, and give its aggregate."""
    store.request_deletion("manager", key)
    claim = store.claim_next(["manager"], "owner", LEASE)
    uid = store.get_resource("manager", key).uid
    store.reserve_effect(uid, "e", claim, kind="k", request_fingerprint="0", generation=1)
    store.reserve_workflow(uid, "c", claim, workflow="w", input_fingerprint=b"0" * 32)
    assert store.delete_resource("manager", key, claim, expected_resource_version=claim.resource_version)
    return claim


def test_asked_again_nothing_changes(store, clock):
    store.put_resource("manager", "key", 1)
    first = store.request_deletion("manager", "key")
    assert first.deletion_timestamp == clock.now
    clock.now += 1
    assert store.request_deletion("manager", "key") == first
    assert store.list_queue()[0].queue_version == 2
    assert [event.type for event in store.list_events()] == ["resource.deletion_requested", "resource.created"]


def test_a_resource_stays_until_asked_for_and_while_a_finalizer_remains(store, claimed):
    assert not store.delete_resource("manager", "key", claimed, expected_resource_version=2)
    store.request_deletion("manager", "key")
    for number, finalizer in enumerate(("f", "")):
        store.update_finalizers("manager", "key", [finalizer], expected_resource_version=3 + number)
        assert not store.delete_resource("manager", "key", claimed, expected_resource_version=4 + number)
    assert store.get_resource("manager", "key").resource_version == 5
    store.update_finalizers("manager", "key", [], expected_resource_version=5)
    assert store.delete_resource("manager", "key", claimed, expected_resource_version=6)


def test_what_goes_and_what_stays(store, database):
    store.put_resource("manager", "key", 1)
    store.update_finalizers("manager", "key", [], expected_resource_version=1)
    claim = end(store)
    assert store.get_resource("manager", "key") is None
    assert store.list_queue() == store.list_events() == store.list_effects() == store.list_workflows() == []
    count = {
        table: database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("controller_resources", "controller_queue", "controller_workflows", "effects", "resources")
    }
    assert count == {
        "controller_resources": 0, "controller_queue": 0, "controller_workflows": 0, "effects": 1, "resources": 2,
    }  # fmt: skip
    last = database.connection.execute(
        "SELECT event_type, actor_type, actor_id, lease_generation FROM events WHERE resource_id = ?"
        " ORDER BY resource_revision DESC",
        (claim.lease.resource_id,),
    ).fetchone()
    assert last == ("resource.deleted", "controller", "owner", 1)
    assert verify(database.connection) == []
    for call in (
        lambda: store.delete_resource("manager", "key", claim, expected_resource_version=5),
        lambda: store.record_event("manager", "key", "noted", claim=claim),
        lambda: store.enqueue("manager", "key"),
        lambda: store.request_deletion("manager", "key"),
    ):
        with pytest.raises(ManagedResourceNotFoundError, match="'key' of 'manager'"):
            call()
    assert not store.renew_claim(claim, LEASE)
    assert not store.settle_claim(claim)
    assert not store.requeue_claim(claim)


def test_lives_of_a_key_are_apart(store, database):
    uids, aggregates = [], []
    for life in range(3):
        resource = store.put_resource("manager", "key", {"life": life}, {"life": life})
        assert (resource.generation, resource.resource_version) == (1, 1)
        assert resource.spec == resource.status.resource_manager_status == {"life": life}
        assert [event.type for event in store.list_events()] == ["resource.created"]
        uids.append(resource.uid)
        aggregates.append(end(store).lease.resource_id)
    assert len(set(uids)) == 3
    plain = identities.managed_resource_key(store.project_id, "manager", "key")
    assert aggregates == [
        identities.aggregate_id("controller", key) for key in (plain, f"{plain}:{uids[1]}", f"{plain}:{uids[2]}")
    ]
    rows = database.connection.execute(
        "SELECT source_resource_id, count(*) FROM effects GROUP BY 1 ORDER BY min(rowid)"
    ).fetchall()
    assert rows == [(aggregate, 1) for aggregate in aggregates]
    assert verify(database.connection) == []


def test_a_claim_does_not_reach_the_next_life(store):
    store.put_resource("manager", "key", 1)
    old = end(store)
    store.put_resource("manager", "key", 1)
    with pytest.raises(StaleClaimError) as caught:
        store.record_event("manager", "key", "noted", claim=old)
    assert caught.value.reason == "missingAuthority"
    new = store.claim_next(["manager"], "owner", LEASE)
    assert (new.owner_id, new.generation) == (old.owner_id, old.generation)
    with pytest.raises(StaleClaimError) as caught:
        store.record_event("manager", "key", "noted", claim=old)
    assert caught.value.reason == "tokenChanged"
    assert not store.settle_claim(old)
    assert store.settle_claim(new)
