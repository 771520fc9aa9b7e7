"""Who may change a run: claims of it through the store of its project."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.errors import ConflictError, ManagedResourceError
from tests.resource_managers.conftest import LEASE, new_run
from tests.resource_managers.runs import HOST, acting, asking, asking_its_session, life_of, running
from tests.state.files import NOW
from tests.state.lives import end, move


def taken(store):
    found = store.claim_next_workflow_run(HOST, LEASE)
    return found and found[0]


def test_by_due_time_then_by_age(store, clock):
    for moment, run_id in ((5, "c"), (3, "b"), (3, "a"), (9, "d")):
        clock.now = NOW + moment
        store.reserve_workflow_run(new_run(run_id))
    clock.now = NOW + 8
    store.enqueue_workflow_run("d", NOW + 4)
    assert [taken(store) for _ in range(4)] == ["b", "a", "d", "c"]
    assert taken(store) is None


def test_what_is_to_be_had(store, database, clock):
    running(store, "held")
    asking(store, "asks")
    parked = running(store, "later")
    store.park_workflow_run("later", parked, NOW + 1)
    for run_id, park in (
        ("source", store.park_workflow_run_for_source_change),
        ("idle", store.park_workflow_run_for_runner_no_progress),
    ):
        park(run_id, running(store, run_id), "why")
    store.reserve_workflow_run(new_run("over"))
    store.cancel_workflow_run("over")
    paused = running(store, "paused")
    store.park_workflow_run("paused", paused)
    store.pause_parked_workflow_run("paused")
    store.reserve_workflow_run(new_run("first", "s"))
    store.reserve_workflow_run(new_run("second", "s"))
    assert [taken(store), taken(store)] == ["first", None]
    clock.now += 1
    assert taken(store) == "later"
    clock.now = NOW + LEASE
    assert [taken(store), taken(store)] == ["held", "first"], "whose holders have let their claims expire"
    assert verify(database.connection) == []


def test_a_sleep_is_over_and_an_event_late_when_they_are_due(store, database, clock):
    for run_id, status, node in (("sleeps", "sleeping", "nap"), ("waits", "waiting", "event")):
        store.reserve_workflow_run(new_run(run_id))
        life = life_of(store, run_id, store.claim_workflow_run(run_id, HOST, LEASE))
        kind = "compute" if status == "sleeping" else "checkpoint"
        life.step(move(started=life.started(node, kind), end=end(status, due_at=NOW + 10, detail=node)))
    assert taken(store) is None
    clock.now = NOW + 10
    assert {taken(store), taken(store)} == {"sleeps", "waits"}
    assert {store.get_workflow_run(run_id).status for run_id in ("sleeps", "waits")} == {"running"}
    assert verify(database.connection) == []


def test_a_run_whose_effect_may_have_happened_is_left_to_a_person(store, database, clock):
    acting(store, "run-1", running(store))
    store.reserve_workflow_run(new_run("run-2"))
    clock.now += LEASE
    assert taken(store) == "run-2"
    run = store.get_workflow_run("run-1")
    assert (run.status, run.queue_status, run.error_code) == ("waiting", "parked", "effectAmbiguous")
    assert verify(database.connection) == []


@pytest.mark.parametrize(("owner", "kind"), [("host-1", "host"), ("notebook-1", "session")])
def test_servers_and_sessions_own_claims(store, database, owner, kind):
    store.reserve_workflow_run(new_run("run-1"))
    claim = store.claim_workflow_run("run-1", owner, LEASE)
    assert (claim.owner_type, claim.owner_id, claim.generation) == (kind, owner, 1)
    store.mark_workflow_run_running("run-1", claim)
    store.park_workflow_run("run-1", claim)
    assert {(event.actor_type, event.actor_id) for event in store.list_run_events("run-1")[1:]} == {(kind, owner)}
    assert verify(database.connection) == []


def test_one_owner_at_a_time(store, clock):
    claim = running(store)
    assert store.claim_workflow_run("run-1", "host-b", LEASE) is None
    assert store.claim_workflow_run("run-1", HOST, LEASE) is None
    clock.now += LEASE - 1
    assert store.renew_workflow_run_claim("run-1", claim) == clock.now + LEASE
    assert store.get_workflow_run("run-1").claim_expires_at == clock.now + LEASE
    before = store.get_workflow_run("run-1").revision
    clock.now += LEASE
    assert store.renew_workflow_run_claim("run-1", claim) is None
    second = store.claim_workflow_run("run-1", "host-b", LEASE)
    assert second.generation == 2
    assert store.get_workflow_run("run-1").revision == before + 1


def test_a_validation_holds_a_waiting_run(store, database):
    asking_its_session(store, validating=True)
    claim = store.claim_workflow_run_for_interaction_validation("run-1", HOST, LEASE)
    run = store.get_workflow_run("run-1")
    assert (run.status, run.queue_status, run.owner_id, run.generation) == ("waiting", "parked", HOST, 2)
    assert store.claim_workflow_run_for_interaction_validation("run-1", "host-b", LEASE) is None
    assert store.claim_workflow_run_for_control("run-1", "host-b", LEASE) is None
    with pytest.raises(ConflictError, match="not claimed to be executed"):
        store.mark_workflow_run_running("run-1", claim)
    store.release_workflow_run_claim("run-1", claim)
    assert store.get_workflow_run("run-1").owner_id is None
    assert verify(database.connection) == []


def test_nothing_is_validated_of_a_run_that_asks_nothing(store):
    asking(store)
    with pytest.raises(ConflictError, match="no submission to validate"):
        store.claim_workflow_run_for_interaction_validation("run-1", HOST, LEASE)


def test_a_control_leaves_the_queue_row_alone(store, database, clock):
    asking(store)
    claim = store.claim_workflow_run_for_control("run-1", "notebook-1", 1000)
    run = store.get_workflow_run("run-1")
    assert (run.status, run.queue_status, run.owner_id) == ("waiting", "parked", "notebook-1")
    clock.now += 2000
    store.release_workflow_run_claim("run-1", claim)
    running(store, "run-2")
    assert store.claim_workflow_run_for_control("run-2", "host-b", 1000) is None
    clock.now += LEASE
    claim = store.claim_workflow_run_for_control("run-2", "host-b", 1000)
    run = store.get_workflow_run("run-2")
    assert (run.status, run.queue_status, run.generation) == ("running", "running", 2)
    with pytest.raises(ConflictError, match="park it, or end it"):
        store.release_workflow_run_claim("run-2", claim)
    store.park_workflow_run("run-2", claim)
    assert verify(database.connection) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda store: store.reserve_workflow_run(new_run("run-1")),
        lambda store: store.park_workflow_run("run-1", running(store)),
    ],
)
def test_what_nobody_holds_is_controlled_without_a_claim(store, make):
    make(store)
    with pytest.raises(ConflictError, match="controlled without a claim"):
        store.claim_workflow_run_for_control("run-1", HOST, LEASE)


def test_half_a_character_is_no_owner(store):
    store.reserve_workflow_run(new_run("run-1"))
    for call in (
        lambda: store.claim_workflow_run("run-1", "\ud800", LEASE),
        lambda: store.claim_next_workflow_run("\ud800", LEASE),
        lambda: store.claim_workflow_run("\ud800", HOST, LEASE),
        lambda: store.prepare_or_adopt_workflow_run(new_run("run-2"), "\ud800", LEASE),
    ):
        with pytest.raises(ManagedResourceError):
            call()
