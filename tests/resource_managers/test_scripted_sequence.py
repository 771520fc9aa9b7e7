"""One operation after the other, and the whole history that they leave: types, actors, generations, payload keys.

Where rows are compared too, they come from a file of the other implementation: `test_rows_of_the_original.py`,
`test_runs_of_the_original.py`. Here stands what that file tells nothing of, and what is mended.
"""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import blobs
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.resource_status import Status
from tests.resource_managers.conftest import LEASE, new_run
from tests.resource_managers.runs import HOST, acting, asking, asking_its_session, running
from tests.state.files import NOW


def told(database, kind="controller"):
    """The histories of all aggregates of a kind, as one list in the order of the file."""
    rows = database.connection.execute(
        "SELECT e.event_type, e.actor_type, e.actor_id, e.lease_generation, e.payload_hash, e.resource_revision"
        " FROM events e JOIN resources r USING (resource_id) WHERE r.resource_type = ? ORDER BY e.event_seq",
        (kind,),
    ).fetchall()
    return [
        (revision, event, by, actor, generation, " ".join(sorted(blobs.read_json(database.connection, digest))))
        for event, by, actor, generation, digest, revision in rows
    ]


def test_the_life_of_a_resource(store, database):
    name = ("manager", "key")
    uid = store.put_resource(*name, 1).uid
    store.put_resource(*name, 2)
    store.put_resource(*name, 2)
    store.enqueue(*name)
    claim = store.claim_next(["manager"], "owner", LEASE)
    assert store.renew_claim(claim, LEASE)
    store.record_event(*name, "reconcile_started", {"reconcileId": "r", "generation": 2}, claim)
    store.reserve_effect(uid, "k", claim, kind="mail", request_fingerprint="f", generation=2)
    for state in ("indeterminate", "pending", "applied"):
        store.update_effect(uid, "k", claim, state)
    child, _ = store.reserve_workflow(uid, "c", claim, workflow="w", input_fingerprint=b"1" * 32)
    store.update_workflow(child.request_id, claim, "running", run_id="run-1", attempt=1)
    version = claim.resource_version
    store.update_status(*name, claim, Status(2), expected_resource_version=version, finalizers=["f"])
    assert store.requeue_claim(claim, error="bad")
    store.complete_workflow(child.request_id, "succeeded", run_id="run-1")
    store.request_deletion(*name)
    store.request_deletion(*name)
    version = store.get_resource(*name).resource_version
    store.update_finalizers(*name, [], expected_resource_version=version)
    store.record_event(*name, "noted")
    claim = store.claim_next(["manager"], "owner", LEASE)
    assert store.delete_resource(*name, claim, expected_resource_version=claim.resource_version)
    store.put_resource(*name, 3)

    anybody, owner = ("control", None, None), ("controller", "owner", 1)
    assert told(database) == [
        (1, "resource.created", *anybody, "generation"),
        (2, "resource.spec_updated", *anybody, "generation"),
        (3, "lease.claimed", *owner, "expiresAt"),
        (4, "reconcile_started", *owner, "generation reconcileId"),
        (5, "resource.status_updated", *owner, ""),
        (6, "lease.released", *owner, ""),
        (7, "workflow_state_changed", "system", None, None, "requestId runId state"),
        (8, "resource.deletion_requested", *anybody, ""),
        (9, "resource.finalizers_updated", *anybody, ""),
        (10, "noted", *anybody, ""),
        (11, "lease.claimed", "controller", "owner", 2, "expiresAt"),
        # Ours: a deletion has its event and lets go of the lease, and the key begins another history.
        (12, "resource.deleted", "controller", "owner", 2, ""),
        (1, "resource.created", *anybody, "generation"),
    ]
    assert told(database, "effect") == [
        (1, "effect.reserved", *owner, ""),
        (2, "effect.indeterminate", *owner, ""),
        (3, "effect.pending", *owner, ""),
        (4, "effect.applied", *owner, ""),
    ]
    assert database.connection.execute("SELECT status, attempt_count, settled_at FROM effects").fetchall() == [
        ("applied", 0, NOW)
    ]
    assert database.connection.execute("SELECT count(*) FROM effect_attempts").fetchone() == (0,)
    assert verify(database.connection) == []


HOLDER = ("host", HOST, 1)
ME = ("control", "me", None)
QUEUED = (1, "run.queued", "session", "headless:run-1", None, "")
BEGUN = [QUEUED, (2, "lease.claimed", *HOLDER, "expiresAt"), (3, "run.queue_running", *HOLDER, "status")]


def executed(store, act):
    store.reserve_workflow_run(new_run("run-1"))
    claim = store.claim_workflow_run("run-1", HOST, LEASE)
    store.mark_workflow_run_running("run-1", claim)
    act(store, claim)


@pytest.mark.parametrize(("act", "tells"), [
    (lambda store, claim: store.park_workflow_run("run-1", claim), [(4, "run.queue_parked", *HOLDER, "status")]),
    (lambda store, claim: store.park_workflow_run_for_source_change("run-1", claim, "x"),
     [(4, "run.source_changed", *HOLDER, "code status")]),
    (lambda store, claim: store.park_workflow_run_for_runner_no_progress("run-1", claim, "x"),
     [(4, "run.worker_no_progress", *HOLDER, "code status")]),
    (lambda store, claim: store.complete_workflow_run("run-1", claim), [(4, "run.queue_done", *HOLDER, "status")]),
    (lambda store, claim: store.fail_workflow_run("run-1", "bad", claim=claim),
     [(4, "run.queue_failed", *HOLDER, "code error status")]),
    (lambda store, claim: store.cancel_workflow_run("run-1", claim),
     [(4, "run.queue_cancelled", *HOLDER, "code error status")]),
    (lambda store, claim: store.cancel_workflow_run("run-1"),
     [(4, "run.queue_cancelled", "control", "workflow-control", None, "code error status")]),
    (lambda store, claim: store.renew_workflow_run_claim("run-1", claim), []),
    (lambda store, claim: store.enqueue_workflow_run("run-1"), []),
    (lambda store, claim: store.record_run_event("run-1", "noted", {"k": 1}, claim=claim),
     [(4, "noted", *HOLDER, "k")]),
])  # fmt: skip
def test_what_stops_a_run_is_told_by_whoever_does_it(store, database, act, tells):
    executed(store, act)
    assert told(database, "run") == [*BEGUN, *tells]
    assert verify(database.connection) == []


def test_a_stale_run_is_cancelled_under_a_claim_for_control(store, database, clock):
    executed(store, lambda store, claim: None)
    clock.now += LEASE
    assert store.cancel_stale_workflow_run("run-1", "tidy")
    # Ours: each generation of a claim has its event.
    assert told(database, "run")[3:] == [
        (4, "lease.claimed", "system", "workflow-control", 2, "expiresAt"),
        (5, "run.queue_cancelled", "control", "tidy", 2, "code staleControl status"),
    ]


def test_a_wait_is_paused_resumed_and_answered(store, database):
    asking(store)
    before = len(told(database, "run"))
    store.pause_parked_workflow_run("run-1", "me")
    store.resume_paused_interaction("run-1", "me")
    store.continue_workflow_run("run-1", "run-2", "yes")
    session = ("session", "headless:run-1", None)
    assert [event[1:] for event in told(database, "run")[before:]] == [
        ("run.paused", *ME, "status"),
        ("run.resumed", *ME, "status"),
        ("run.queue_done_for_continuation", *session, "continuationRunId"),
        ("run.queued", *session, ""),
    ]


def test_a_session_is_late(store, database):
    asking_its_session(store)
    before = len(told(database, "run"))
    claim = store.claim_workflow_run_for_control("run-1", HOST, LEASE)
    assert store.begin_workflow_run_interaction_timeout("run-1", claim, "r")
    assert [event[1:] for event in told(database, "run")[before:]] == [
        ("lease.claimed", "host", HOST, 2, "expiresAt"),
        ("node_timed_out", "system", None, None, "attemptId nodeId payload scope"),
        ("run.interaction_timeout_started", "host", HOST, 2, "attemptId requestId"),
    ]


def test_an_effect_of_a_run_and_its_end(store, database):
    claim = running(store)
    acting(store, "run-1", claim)
    store.park_workflow_run_for_ambiguous_effect("run-1", claim)
    assert told(database, "run")[-1][1:] == ("run.effect_ambiguous", *HOLDER, "code status")
    claim = running(store, "run-2")
    acting(store, "run-2", claim)
    store.cancel_workflow_run("run-2", claim)
    assert told(database, "effect") == [
        (1, "effect.reserved", *HOLDER, "attemptId runId"),
        (2, "effect.ambiguous", "system", None, None, "recovery runId"),
        (1, "effect.reserved", *HOLDER, "attemptId runId"),
        (2, "effect.ambiguous", "control", HOST, None, "reason runId"),
    ]
    assert verify(database.connection) == []
