"""What a manager reports, and what keeps a resource from going."""

from __future__ import annotations

import json

import pytest

from pi_workflows_nb.state import blobs
from pi_workflows_nb.wire.errors import ManagedResourceConflictError, ManagedResourceError
from pi_workflows_nb.wire.resource_status import ChildRun, Condition, Status
from tests.state.files import NOW

STATUS = Status(
    1,
    (Condition("Ready", "unknown", "Waiting", "soon", 1, NOW),),
    {"phase": "x"},
    ChildRun("request", None, "pending", 0),
)


def test_a_status_moves_the_version_of_the_claim_along(store, claimed):
    resource = store.update_status("manager", "key", claimed, STATUS, expected_resource_version=2)
    assert resource.status == STATUS == store.get_resource("manager", "key").status
    assert resource.resource_version == claimed.resource_version == 3
    again = store.update_status(
        "manager", "key", claimed, Status(), expected_resource_version=claimed.resource_version, finalizers=["b", "a"]
    )
    assert again.finalizers == ("b", "a")


def test_a_status_is_stored_in_the_names_of_the_file(store, database, claimed):
    store.update_status("manager", "key", claimed, STATUS, expected_resource_version=2)
    (digest,) = database.connection.execute("SELECT status_hash FROM controller_resources").fetchone()
    assert blobs.read_json(database.connection, digest) == {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Ready", "status": "unknown", "reason": "Waiting", "message": "soon", "observedGeneration": 1,
                "lastTransitionTime": "2027-01-15T08:00:00.000Z",
            }
        ],
        "resourceManagerStatus": {"phase": "x"},
        "workflowRun": {"requestId": "request", "state": "pending", "attempt": 0},
    }  # fmt: skip


def test_the_wrong_version_changes_nothing(store, claimed):
    before = store.get_resource("manager", "key")
    for version in (1, 3):
        with pytest.raises(ManagedResourceConflictError, match=f"version 2, not {version}"):
            store.update_status("manager", "key", claimed, STATUS, expected_resource_version=version)
        with pytest.raises(ManagedResourceConflictError):
            store.update_finalizers("manager", "key", ["f"], expected_resource_version=version)
        with pytest.raises(ManagedResourceConflictError):
            store.delete_resource("manager", "key", claimed, expected_resource_version=version)
    assert store.get_resource("manager", "key") == before
    assert claimed.resource_version == 2


def test_finalizers_keep_their_order_and_wake_nobody(store):
    store.put_resource("manager", "key", 1)
    for number, finalizers in enumerate((["b", "a", ""], ["a", "c"], []), 1):
        resource = store.update_finalizers("manager", "key", finalizers, expected_resource_version=number)
        assert resource.finalizers == tuple(finalizers)
    assert store.list_queue()[0].queue_version == 1
    assert [event.type for event in store.list_events(limit=3)] == ["resource.finalizers_updated"] * 3


@pytest.mark.parametrize("finalizers", [["a", "b", "a"], ["", ""], "ab", [1], ["\ud800"]])
def test_what_finalizers_may_not_be(store, claimed, finalizers):
    for call in (
        lambda: store.update_finalizers("manager", "key", finalizers, expected_resource_version=2),
        lambda: store.update_status(
            "manager", "key", claimed, STATUS, expected_resource_version=2, finalizers=finalizers
        ),
    ):
        with pytest.raises(ManagedResourceError):
            call()
    assert store.get_resource("manager", "key").resource_version == 2


def test_a_status_of_another_implementation_is_read(store, database):
    store.put_resource("manager", "key", 1)
    foreign = {"conditions": [{"type": "Ready", "status": True}], "resourceManagerStatus": 1, "more": json.loads("{}")}
    digest = blobs.put_json(database.connection, foreign, NOW)
    database.connection.execute("UPDATE controller_resources SET status_hash = ?", (digest,))
    status = store.get_resource("manager", "key").status
    assert status == Status(0, (Condition("Ready", True, ""),), 1)
