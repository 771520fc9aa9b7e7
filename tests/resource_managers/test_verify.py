"""Faults in the rows of managed resources are found."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import resource_invariants
from pi_workflows_nb.state.verify import verify
from tests.resource_managers.conftest import LEASE

GONE = "(SELECT resource_id FROM resources WHERE resource_id NOT IN (SELECT resource_id FROM controller_resources)"
HELD = (
    "owner_type = 'controller', owner_id = 'o', token_hash = randomblob(32), acquired_at = 1, heartbeat_at = 1,"
    " expires_at = 1"
)
FAULTS = {
    "own aggregate": "UPDATE resources SET aggregate_key = 'not ' || aggregate_key WHERE resource_type = 'controller'",
    "without a gap": "DELETE FROM controller_finalizers WHERE finalizer = 'f'",
    "says so last": "UPDATE events SET event_type = 'other' WHERE event_type = 'resource.deleted'",
    "nobody holds": f"UPDATE leases SET {HELD} WHERE resource_id IN {GONE} AND resource_type = 'controller')",
    "only managers": "UPDATE leases SET owner_type = 'host' WHERE owner_type IS NOT NULL",
    "stands in the queue": "DELETE FROM controller_queue",
    "errors are counted": "UPDATE controller_queue SET consecutive_errors = 1",
    "managed resource has one": "UPDATE effects SET source_revision = 1000",
    "observed, not tried": "UPDATE effects SET status = 'applying'",
    "reserved for it": "UPDATE controller_workflows SET run_id = 'other'",
}


@pytest.fixture
def told(store, database):
    """A file with a bit of everything: two lives of one key, a claimed resource with an effect and a child."""
    for key in ("gone", "key"):
        store.put_resource("manager", key, {})
        resource = store.update_finalizers("manager", key, ["f", "g"], expected_resource_version=1)
    store.request_deletion("manager", "gone")
    claim = store.claim_next(["manager"], "owner", LEASE)
    resource = store.update_finalizers("manager", "gone", [], expected_resource_version=claim.resource_version)
    store.delete_resource("manager", "gone", claim, expected_resource_version=resource.resource_version)
    store.put_resource("manager", "gone", {})
    claim = store.claim_next(["manager"], "owner", LEASE)
    resource = store.get_resource(claim.resource_manager, claim.key)
    store.reserve_effect(resource.uid, "e", claim, kind="k", request_fingerprint="0", generation=1)
    child, _ = store.reserve_workflow(resource.uid, "c", claim, workflow="w", input_fingerprint=b"0" * 32)
    store.update_workflow(child.request_id, claim, "running", run_id="r", attempt=1)
    return database.connection


def test_what_the_store_writes_is_sound(told):
    assert verify(told) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(told, name):
    told.execute("PRAGMA foreign_keys = OFF")
    assert told.execute(FAULTS[name]).rowcount
    assert any(name in finding.rule for finding in verify(told)), verify(told)


def test_every_rule_has_its_fault():
    assert {rule.name for rule in resource_invariants.RULES} == {
        rule.name for rule in resource_invariants.RULES if any(name in rule.name for name in FAULTS)
    }
