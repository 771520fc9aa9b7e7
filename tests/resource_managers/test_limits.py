"""What is too large, or named in an odd way, gets a clear answer and disturbs nothing."""

from __future__ import annotations

import json

import pytest

from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.errors import ManagedResourceError, NotJsonError
from pi_workflows_nb.wire.resource_status import Status
from tests.resource_managers.conftest import LEASE
from tests.wire.test_identities import STORE, made

MIB = 1 << 20
ODD = [
    "😀" * 256,
    'it\'s "quoted"',
    "a\nb\r\n",
    "a\0b",
    " ",
    "%_?*",
    "../..",
    "é",
    "e\u0301",
    "x" * 512,
    "'; DROP TABLE blobs",
]


def whole(store, manager, key):
    """A life with every operation, in odd names."""
    resource = store.put_resource(manager, key, {key: manager})
    claim = store.claim_next([manager], key, LEASE)
    assert (claim.resource_manager, claim.key, claim.owner_id) == (manager, key, key)
    store.reserve_effect(resource.uid, key, claim, kind=manager, request_fingerprint="0", generation=1)
    assert store.update_effect(resource.uid, key, claim, "applied", external_ref=key).external_ref == key
    child, _ = store.reserve_workflow(resource.uid, key, claim, workflow=manager, input_fingerprint=b"0" * 32)
    store.complete_workflow(child.request_id, "failed", error=key)
    store.record_event(manager, key, key, {key: key}, claim)
    assert store.list_events(manager, key, 1)[0].payload == {key: key}
    store.request_deletion(manager, key)
    resource = store.update_finalizers(manager, key, [key], expected_resource_version=5)
    assert resource.finalizers == (key,)
    store.update_finalizers(manager, key, [], expected_resource_version=6)
    assert store.delete_resource(manager, key, claim, expected_resource_version=7)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(store, database, name):
    whole(store, name, "key")
    whole(store, "manager", name)
    store.put_resource("manager", name, 1)
    store.put_resource("manager", "other", 1)
    assert store.claim_next(["manager"], "owner", LEASE, [("manager", name)]).key == "other"
    assert verify(database.connection) == []


def test_names_of_the_vectors(store):
    for vector in STORE["names_and_keys"]:
        name = made(vector["value"])
        for given in ((name, "key"), ("manager", name)):
            if vector["accepted"]:
                assert store.put_resource(*given, 1).generation == 1
            else:
                with pytest.raises(ManagedResourceError, match="1 to 512 UTF-16 code units"):
                    store.put_resource(*given, 1)


@pytest.mark.parametrize("name", ["", "x" * 513, "😀" * 256 + "x", "\ud800", None, 7, b"key"])
def test_what_is_no_name(store, database, name):
    before = list(database.connection.iterdump())
    for call in (
        lambda: store.put_resource(name, "key", 1),
        lambda: store.put_resource("manager", name, 1),
        lambda: store.get_resource("manager", name),
        lambda: store.enqueue(name, "key"),
        lambda: store.request_deletion("manager", name),
        lambda: store.record_event("manager", name, "noted"),
    ):
        with pytest.raises(ManagedResourceError, match=r"a (manager|key) "):
            call()
    assert list(database.connection.iterdump()) == before


@pytest.mark.parametrize("field", ["owner", "effect", "kind", "reference", "request", "workflow", "event"])
def test_half_a_character_is_refused_wherever_text_is_kept(store, claimed, field):
    uid = store.get_resource("manager", "key").uid
    bad = {field: "half \ud83d"}
    store.put_resource("manager", "second", 1)
    store.reserve_effect(uid, "e", claimed, kind="k", request_fingerprint="0", generation=1)
    calls = {
        "owner": lambda: store.claim_next(["manager"], bad["owner"], LEASE),
        "effect": lambda: store.reserve_effect(
            uid, bad["effect"], claimed, kind="k", request_fingerprint="0", generation=1
        ),
        "kind": lambda: store.reserve_effect(
            uid, "x", claimed, kind=bad["kind"], request_fingerprint="0", generation=1
        ),
        "reference": lambda: store.update_effect(uid, "e", claimed, "applied", external_ref=bad["reference"]),
        "request": lambda: store.reserve_workflow(
            uid, bad["request"], claimed, workflow="w", input_fingerprint=b"0" * 32
        ),
        "workflow": lambda: store.reserve_workflow(
            uid, "c", claimed, workflow=bad["workflow"], input_fingerprint=b"0" * 32
        ),
        "event": lambda: store.record_event("manager", "key", bad["event"]),
    }
    before = list(store._connection.iterdump())
    with pytest.raises(ManagedResourceError, match="half a character at position 5"):
        calls[field]()
    assert list(store._connection.iterdump()) == before


def test_a_spec_of_one_mebibyte_and_one_byte_more(store):
    spec = "x" * (MIB - 2)
    assert store.put_resource("manager", "key", spec).spec == spec
    with pytest.raises(ManagedResourceError, match=r"a spec of 1,048,577 bytes: 1,048,576 is the most"):
        store.put_resource("manager", "key", spec + "x")
    with pytest.raises(ManagedResourceError):
        store.put_resource("manager", "new", "é" * (MIB // 2))
    assert store.get_resource("manager", "key").generation == 1
    assert store.get_resource("manager", "new") is None


def test_a_status_of_one_mebibyte_and_one_byte_more(store):
    room = MIB - len(json.dumps(Status(resource_manager_status="").to_json(), separators=(",", ":")))
    store.put_resource("manager", "key", 1, "x" * room)
    claim = store.claim_next(["manager"], "owner", LEASE)
    with pytest.raises(ManagedResourceError, match="a status of 1,048,577 bytes"):
        store.put_resource("manager", "new", 1, "x" * (room + 1))
    with pytest.raises(ManagedResourceError, match="a status of 1,048,577 bytes"):
        store.update_status(
            "manager", "key", claim, Status(resource_manager_status="y" * (room + 1)), expected_resource_version=2
        )
    status = Status(resource_manager_status="y" * room)
    assert store.update_status("manager", "key", claim, status, expected_resource_version=2).status == status


def test_a_payload_of_sixty_four_kibibytes_and_one_byte_more(store):
    store.put_resource("manager", "key", 1)
    payload = {"x": "y" * ((64 << 10) - 8)}
    assert store.record_event("manager", "key", "noted", payload).payload == payload
    payload["x"] += "y"
    with pytest.raises(ManagedResourceError, match="payload of an event of 65,537 bytes"):
        store.record_event("manager", "key", "noted", payload)
    with pytest.raises(ManagedResourceError, match="not a list"):
        store.record_event("manager", "key", "noted", [1])
    assert len(store.list_events()) == 2


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, {"a": object()}, 2**53, b"x"])
def test_what_is_no_json(store, value):
    for call in (
        lambda: store.put_resource("manager", "key", {"deep": [value]}),
        lambda: store.put_resource("manager", "key", 1, value),
    ):
        with pytest.raises(NotJsonError):
            call()
    assert store.list_resources() == []


def test_a_long_error_is_cut(store, database, claimed):
    assert store.requeue_claim(claimed, error="x" * 10_000)
    (content,) = database.connection.execute(
        "SELECT CAST(content AS TEXT) FROM controller_queue JOIN blobs ON blob_hash = last_error_hash"
    ).fetchone()
    assert content == "x" * 8191 + "…"
