"""Nothing is done under a claim that is not the live one, or for another resource."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.wire.errors import ClaimTargetError, StaleClaimError
from pi_workflows_nb.wire.resource_status import Status
from tests.resource_managers.conftest import LEASE


def under(store, claim, manager="manager", key="key"):
    """Every operation under a claim that raises when it is stale, for a resource."""
    resource = store.get_resource(manager, key)
    uid, version = resource.uid, resource.resource_version
    child = store.list_workflows(uid)[0].request_id
    return [
        lambda: store.update_status(manager, key, claim, Status(), expected_resource_version=version),
        lambda: store.delete_resource(manager, key, claim, expected_resource_version=version),
        lambda: store.reserve_effect(uid, "new", claim, kind="k", request_fingerprint="0", generation=1),
        lambda: store.update_effect(uid, "e", claim, "applied"),
        lambda: store.reserve_workflow(uid, "new", claim, workflow="w", input_fingerprint=b"0" * 32),
        lambda: store.update_workflow(child, claim, "running"),
        lambda: store.record_event(manager, key, "noted", claim=claim),
    ]


def prepare(store, manager, key):
    """A claim on a new resource that has an effect and a child."""
    uid = store.put_resource(manager, key, 1).uid
    claim = store.claim_next([manager], "owner", LEASE)
    store.reserve_effect(uid, "e", claim, kind="k", request_fingerprint="0", generation=1)
    store.reserve_workflow(uid, "c", claim, workflow="w", input_fingerprint=b"0" * 32)
    return claim


def dump(database):
    return list(database.connection.iterdump())


def refused(store, database, claim, error, reason=None):
    before = dump(database)
    for call in under(store, claim):
        with pytest.raises(error) as caught:
            call()
        assert getattr(caught.value, "reason", None) == reason
    assert not store.renew_claim(claim, LEASE)
    assert dump(database) == before


def test_an_expired_claim(store, database, clock):
    claim = prepare(store, "manager", "key")
    clock.now += LEASE
    refused(store, database, claim, StaleClaimError, "expired")


def test_a_released_claim(store, database):
    claim = prepare(store, "manager", "key")
    store.settle_claim(claim)
    refused(store, database, claim, StaleClaimError, "missingAuthority")


def test_a_replaced_claim(store, database, clock):
    claim = prepare(store, "manager", "key")
    clock.now += LEASE
    store.claim_next(["manager"], "owner", LEASE)
    refused(store, database, claim, StaleClaimError, "generationChanged")
    clock.now += LEASE
    store.claim_next(["manager"], "other", LEASE)
    refused(store, database, claim, StaleClaimError, "ownerChanged")


def test_a_forged_claim(store, database):
    claim = prepare(store, "manager", "key")
    forged = replace(claim, lease=replace(claim.lease, token="x"))
    refused(store, database, forged, StaleClaimError, "tokenChanged")
    assert "token" not in repr(claim)


def test_the_claim_of_another_resource(store, database, tmp_path):
    elsewhere = SqliteResourceManagerStore(database, tmp_path / "elsewhere", clock=store._clock)
    other = prepare(store, "other", "key")
    prepare(store, "manager", "key")
    before = dump(database)
    for call in under(store, other):
        with pytest.raises(ClaimTargetError, match="'key' of 'other' does not reach 'key' of 'manager'"):
            call()
    assert not elsewhere.settle_claim(other)
    assert not elsewhere.requeue_claim(other)
    assert not elsewhere.renew_claim(other, LEASE)
    assert dump(database) == before
    mine = prepare(elsewhere, "other", "key")
    with pytest.raises(ClaimTargetError):
        store.record_event("other", "key", "noted", claim=mine)


def test_the_live_claim(store):
    claim = prepare(store, "manager", "key")
    for number in range(7):
        assert under(store, claim)[number]() is not None
