"""The history of resources."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError


def test_an_event_may_be_noted_by_anybody_or_under_a_claim(store, database, claimed, clock):
    clock.now += 5
    noted = store.record_event("manager", "key", "custom", {"b": 1, "a": None})
    under = store.record_event("manager", "key", "reconcile_started", claim=claimed)
    assert (noted.recorded_at, noted.resource_manager, noted.key, noted.type) == (
        clock.now, "manager", "key", "custom",
    )  # fmt: skip
    assert (noted.payload, under.payload) == ({"a": None, "b": 1}, {})
    assert noted.seq < under.seq
    assert claimed.resource_version == under.resource_version == 4
    assert store.list_events(limit=2) == [under, noted]
    rows = database.connection.execute(
        "SELECT actor_type, actor_id, lease_generation FROM events ORDER BY event_seq DESC LIMIT 2"
    ).fetchall()
    assert rows == [("controller", "owner", 1), ("control", None, None)]


def test_lists_are_newest_first_and_end_at_a_hundred(store, claimed):
    store.put_resource("manager", "other", 1)
    store.put_resource("another", "key", 1)
    for number in range(120):
        store.record_event("manager", "key", "n", {"n": number})
    assert [event.payload["n"] for event in store.list_events()] == list(range(119, 19, -1))
    assert len(store.list_events(limit=1000)) == 124
    assert [event.type for event in store.list_events("another")] == ["resource.created"]
    assert [event.key for event in store.list_events(key="other")] == ["other"]
    assert len(store.list_events("manager", limit=1000)) == 123
    assert len(store.list_events("manager", "key", 1000)) == 122
    assert store.list_events("manager", "nobody") == []


def test_there_is_no_history_of_what_is_not_there(store):
    with pytest.raises(ManagedResourceNotFoundError):
        store.record_event("manager", "key", "noted")


def test_effects_have_a_history_of_their_own(store, claimed):
    uid = store.get_resource("manager", "key").uid
    store.reserve_effect(uid, "e", claimed, kind="k", request_fingerprint="0", generation=1)
    assert [event.type for event in store.list_events()] == ["lease.claimed", "resource.created"]
