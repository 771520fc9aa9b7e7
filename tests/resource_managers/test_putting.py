"""Putting a desired state, and reading it back."""

from __future__ import annotations

from tests.resource_managers.conftest import LEASE
from tests.state.files import NOW


def names(store):
    return [event.type for event in store.list_events()]


def test_a_new_resource_is_observed_at_no_generation_and_due_now(store):
    resource = store.put_resource("manager", "key", {"size": 1}, {"phase": "new"})
    assert (resource.resource_manager, resource.key) == ("manager", "key")
    assert (resource.resource_version, resource.generation) == (1, 1)
    assert (resource.deletion_timestamp, resource.finalizers) == (None, ())
    assert resource.spec == {"size": 1}
    assert resource.status.observed_generation == 0
    assert resource.status.conditions == ()
    assert resource.status.resource_manager_status == {"phase": "new"}
    assert [(entry.key, entry.available_at) for entry in store.list_queue()] == [("key", NOW)]
    assert store.get_resource("manager", "key") == store.get_resource_by_uid(resource.uid) == resource
    assert store.get_resource("manager", "other") is store.get_resource_by_uid("other") is None


def test_an_equal_spec_changes_nothing(store, clock):
    first = store.put_resource("manager", "key", {"a": 1, "b": [2.0]})
    clock.now += 1
    assert store.put_resource("manager", "key", {"b": [2], "a": 1}, {"ignored": True}) == first
    assert names(store) == ["resource.created"]
    assert store.list_queue()[0].queue_version == 1


def test_another_spec_raises_the_generation_and_leaves_the_status(store):
    first = store.put_resource("manager", "key", {"size": 1}, {"phase": "new"})
    second = store.put_resource("manager", "key", {"size": 2}, {"ignored": True})
    assert (second.uid, second.generation, second.resource_version) == (first.uid, 2, 2)
    assert second.status == first.status
    assert [event.payload for event in store.list_events()] == [{"generation": 2}, {"generation": 1}]
    assert store.list_queue()[0].queue_version == 2


def test_a_resource_that_is_to_go_can_get_another_spec(store):
    store.put_resource("manager", "key", 1)
    store.request_deletion("manager", "key")
    assert store.put_resource("manager", "key", 2).generation == 2


def test_lists_go_by_manager_and_key(store):
    for manager, key in (("b", "1"), ("a", "2"), ("a", "10")):
        store.put_resource(manager, key, None)
    assert [(each.resource_manager, each.key) for each in store.list_resources()] == [
        ("a", "10"), ("a", "2"), ("b", "1"),
    ]  # fmt: skip
    assert [each.key for each in store.list_resources("a")] == ["10", "2"]


def test_names_that_make_the_same_text_are_two_resources(store):
    first = store.put_resource("a:b", "c", 1)
    second = store.put_resource("a", "b:c", 2)
    assert store.get_resource("a:b", "c") == first
    assert store.get_resource("a", "b:c") == second
    claims = [store.claim_next(["a", "a:b"], "owner", LEASE) for _ in range(2)]
    assert claims[0].lease.resource_id != claims[1].lease.resource_id
