"""How runs stop through the store of their project: parked, paused, for a person, or for good; and what is noted."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.errors import ConflictError, ManagedResourceError, NotJsonError
from tests.resource_managers.conftest import LEASE, new_run
from tests.resource_managers.runs import HOST, acting, asking, asking_its_session, life_of, running
from tests.state.files import NOW, Story


def stands(store, run_id="run-1"):
    run = store.get_workflow_run(run_id)
    return run.status, run.queue_status, run.error_code, run.owner_id


def last(store, run_id="run-1"):
    event = store.list_run_events(run_id)[-1]
    return event.type, event.actor_type, event.actor_id, event.lease_generation, event.payload


def test_parked_and_due_again(store, database):
    claim = running(store)
    store.park_workflow_run("run-1", claim, NOW + 7)
    assert stands(store) == ("running", "parked", None, None)
    assert store.get_workflow_run("run-1").available_at == NOW + 7
    assert last(store) == ("run.queue_parked", "host", HOST, 1, {"status": "parked"})
    assert verify(database.connection) == []


@pytest.mark.parametrize(("reason", "code", "event"), [
    ("source_change", "workflowSourceChanged", "run.source_changed"),
    ("runner_no_progress", "runnerNoProgress", "run.worker_no_progress"),
])  # fmt: skip
@pytest.mark.parametrize(("detail", "kept"), [("why", "why"), ("x" * 9000, "x" * 8191 + "…"), ("a\ud800", "a\ufffd")])
def test_parked_until_somebody_resumes_it(store, database, reason, code, event, detail, kept):
    getattr(store, f"park_workflow_run_for_{reason}")("run-1", running(store), detail)
    assert stands(store) == ("running", "parked", code, None)
    run = store.get_workflow_run("run-1")
    assert (run.detail, run.error) == (kept, kept)
    assert last(store) == (event, "host", HOST, 1, {"code": code, "status": "parked"})
    assert store.claim_next_workflow_run(HOST, LEASE) is None
    assert verify(database.connection) == []


def test_parked_for_a_person_when_an_effect_may_have_happened(store, database):
    claim = running(store)
    with pytest.raises(ConflictError, match="no effect that may have happened"):
        store.park_workflow_run_for_ambiguous_effect("run-1", claim)
    acting(store, "run-1", claim)
    store.park_workflow_run_for_ambiguous_effect("run-1", claim)
    assert stands(store) == ("waiting", "parked", "effectAmbiguous", None)
    assert last(store) == ("run.effect_ambiguous", "host", HOST, 1, {"code": "effectAmbiguous", "status": "waiting"})
    assert verify(database.connection) == []


def test_an_effect_that_may_be_applied_again_parks_nobody(store, database):
    claim = running(store)
    acting(store, "run-1", claim, "idempotent")
    with pytest.raises(ConflictError):
        store.park_workflow_run_for_ambiguous_effect("run-1", claim)
    assert database.connection.execute("SELECT status FROM effects").fetchall() == [("applying",)]


@pytest.mark.parametrize("hold", ["claim_workflow_run_for_control", "claim_workflow_run_for_interaction_validation"])
def test_what_is_not_executed_is_not_parked(store, hold):
    asking_its_session(store, validating=True)
    claim = getattr(store, hold)("run-1", HOST, LEASE)
    for call in (
        lambda: store.park_workflow_run("run-1", claim),
        lambda: store.park_workflow_run_for_source_change("run-1", claim, "x"),
        lambda: store.park_workflow_run_for_runner_no_progress("run-1", claim, "x"),
        lambda: store.park_workflow_run_for_ambiguous_effect("run-1", claim),
        lambda: store.complete_workflow_run("run-1", claim),
    ):
        with pytest.raises(ConflictError, match="not being executed"):
            call()


def test_a_session_that_is_late(store, database, clock):
    asking_its_session(store, validating=True)
    claim = store.claim_workflow_run_for_control("run-1", HOST, LEASE)
    for wrong in ("another", ""):
        with pytest.raises(ConflictError, match="does not wait for an answer"):
            store.begin_workflow_run_interaction_timeout("run-1", claim, wrong)
    clock.now += 90
    assert store.begin_workflow_run_interaction_timeout("run-1", claim, "r")
    assert stands(store) == ("running", "starting", None, HOST)
    payload = {"attemptId": "run-1-n-1", "requestId": "r"}
    assert last(store) == ("run.interaction_timeout_started", "host", HOST, 2, payload)
    rows = database.connection.execute(
        "SELECT a.status, i.status, i.revision, s.outcome, x.step_index FROM node_attempts a"
        " JOIN interactive_requests i USING (attempt_id) JOIN interactive_submissions s USING (request_id)"
        " JOIN run_steps x USING (attempt_id)"
    ).fetchall()
    assert rows == [("timed_out", "cancelled", 2, "rejected", 0)]
    with pytest.raises(ConflictError):
        store.begin_workflow_run_interaction_timeout("run-1", claim, "r")
    store.mark_workflow_run_running("run-1", claim)
    assert verify(database.connection) == []
    store.complete_workflow_run("run-1", claim)


def test_a_late_session_whose_place_is_taken(store, database):
    asking_its_session(store)
    store.reserve_workflow_run(new_run("run-2", "s"))
    claim = store.claim_workflow_run_for_control("run-1", HOST, LEASE)
    before = list(database.connection.iterdump())
    assert not store.begin_workflow_run_interaction_timeout("run-1", claim, "r")
    assert list(database.connection.iterdump()) == before
    store.cancel_workflow_run("run-2")
    assert store.begin_workflow_run_interaction_timeout("run-1", claim, "r")


def test_a_decision_ends_by_its_default_and_a_paused_wait_does_not(store, database):
    asking_its_session(store)
    claim = store.claim_workflow_run_for_control("run-1", HOST, LEASE)
    database.connection.execute("UPDATE interactive_requests SET kind = 'decision'")
    with pytest.raises(ConflictError):
        store.begin_workflow_run_interaction_timeout("run-1", claim, "r")
    database.connection.execute("UPDATE interactive_requests SET kind = 'agent'")
    store.pause_parked_workflow_run("run-1")
    claim = store.claim_workflow_run_for_control("run-1", HOST, LEASE)
    with pytest.raises(ConflictError):
        store.begin_workflow_run_interaction_timeout("run-1", claim, "r")


def test_a_wait_is_paused_and_resumed_in_place(store, database):
    asking(store)
    with pytest.raises(ConflictError, match="not a paused wait"):
        store.resume_paused_interaction("run-1")
    store.pause_parked_workflow_run("run-1", "me")
    assert last(store) == ("run.paused", "control", "me", None, {"status": "parked"})
    assert store.get_workflow_run("run-1").paused
    with pytest.raises(ConflictError, match="it is paused"):
        store.continue_workflow_run("run-1", "run-2", None)
    store.resume_paused_interaction("run-1", "me")
    assert last(store) == ("run.resumed", "control", "me", None, {"status": "waiting"})
    assert stands(store)[:2] == ("waiting", "parked")
    assert verify(database.connection) == []


def test_only_what_is_parked_is_paused_here(store):
    store.reserve_workflow_run(new_run("run-1"))
    with pytest.raises(ConflictError, match="not parked"):
        store.pause_parked_workflow_run("run-1")


def test_completed(store, database):
    claim = running(store)
    store.complete_workflow_run("run-1", claim, {"answer": 42})
    assert stands(store) == ("completed", "done", None, None)
    assert last(store) == ("run.queue_done", "host", HOST, 1, {"status": "done"})
    output = "SELECT CAST(content AS TEXT) FROM runs JOIN blobs ON blob_hash = final_output_hash"
    assert database.connection.execute(output).fetchall() == [('{"answer":42}',)]
    other = running(store, "run-2")
    with pytest.raises(NotJsonError):
        store.complete_workflow_run("run-2", other, object())
    assert verify(database.connection) == []


def test_failed_under_a_claim_or_while_nobody_holds_it(store, database):
    claim = running(store)
    with pytest.raises(ConflictError, match="held by host-a"):
        store.fail_workflow_run("run-1", "boom")
    assert store.fail_workflow_run("run-1", "boom", "nodeFailed", claim)
    assert stands(store) == ("failed", "failed", "nodeFailed", None)
    payload = {"code": "nodeFailed", "error": "boom", "status": "failed"}
    assert last(store) == ("run.queue_failed", "host", HOST, 1, payload)
    assert not store.fail_workflow_run("run-1", "again")
    assert store.get_workflow_run("run-1").error == "boom"
    store.reserve_workflow_run(new_run("run-2"))
    assert store.fail_workflow_run("run-2", "never begun")
    payload = {"code": "failed", "error": "never begun", "status": "failed"}
    assert last(store, "run-2") == ("run.queue_failed", "system", None, None, payload)
    assert verify(database.connection) == []


def test_cancelled_by_its_holder_by_nobody_and_whoever_holds_it(store, database, clock):
    said = {"code": "cancelled", "error": "Workflow run cancelled", "status": "cancelled"}
    running_claim = running(store)
    assert store.cancel_workflow_run("run-1", running_claim)
    assert last(store) == ("run.queue_cancelled", "host", HOST, 1, said)
    store.reserve_workflow_run(new_run("run-2"))
    assert store.cancel_workflow_run("run-2")
    assert last(store, "run-2") == ("run.queue_cancelled", "system", None, None, said)
    running(store, "run-3")
    assert store.cancel_workflow_run("run-3")
    assert last(store, "run-3") == ("run.queue_cancelled", "control", "workflow-control", None, said)
    running(store, "run-4")
    clock.now += LEASE
    assert store.cancel_workflow_run("run-4")
    stale = {"code": "cancelled", "staleControl": True, "status": "cancelled"}
    assert last(store, "run-4") == ("run.queue_cancelled", "control", "workflow-control", 2, stale)
    for number in (1, 2, 3, 4):
        assert stands(store, f"run-{number}") == ("cancelled", "cancelled", "cancelled", None)
        assert not store.cancel_workflow_run(f"run-{number}")
    assert verify(database.connection) == []


def test_a_run_that_was_answered_does_not_end_again(store):
    asking(store)
    store.continue_workflow_run("run-1", "run-2", None)
    for call in (
        lambda: store.cancel_workflow_run("run-1"),
        lambda: store.cancel_stale_workflow_run("run-1"),
        lambda: store.fail_workflow_run("run-1", "x"),
    ):
        with pytest.raises(ConflictError, match="it was answered"):
            call()


def test_only_what_nobody_alive_holds_is_cancelled_as_stale(store, database, clock):
    claim = running(store)
    assert not store.cancel_stale_workflow_run("run-1", "tidy")
    store.park_workflow_run("run-1", claim)
    running(store, "run-2")
    clock.now += LEASE
    stale = {"code": "cancelled", "staleControl": True, "status": "cancelled"}
    for run_id in ("run-1", "run-2"):
        assert store.cancel_stale_workflow_run(run_id, "tidy")
        assert last(store, run_id) == ("run.queue_cancelled", "control", "tidy", 2, stale)
        assert not store.cancel_stale_workflow_run(run_id, "tidy")
    assert verify(database.connection) == []


def test_the_end_of_a_run_closes_what_hangs_on_it(store, database):
    claim = running(store)
    acting(store, "run-1", claim)
    assert store.cancel_workflow_run("run-1", claim)
    rows = "SELECT a.status, e.status FROM node_attempts a, effects e"
    assert database.connection.execute(rows).fetchall() == [("cancelled", "ambiguous")]
    assert verify(database.connection) == []


def test_events_are_noted_by_whom_and_read_in_parts(store, database):
    claim = running(store)
    assert store.record_run_event("run-1", "custom", {"k": "v"}, claim=claim) == 5
    assert last(store) == ("custom", "host", HOST, 1, {"k": "v"})
    assert store.record_run_event("run-1", "custom", actor_id="notebook-1") == 6
    assert last(store) == ("custom", "session", "notebook-1", 1, {})
    store.reserve_workflow_run(new_run("run-2"))
    store.record_run_event("run-2", "custom")
    assert last(store, "run-2") == ("custom", "session", None, None, {})
    everything = store.list_run_events("run-1")
    assert [event.revision for event in everything] == [1, 2, 3, 4, 5, 6]
    assert store.list_run_events("run-1", limit=2) == everything[:2]
    assert store.list_run_events("run-1", after=everything[1].seq) == everything[2:]
    for payload in ({"x": "y" * (64 << 10)}, [1]):
        with pytest.raises(ManagedResourceError):
            store.record_run_event("run-1", "custom", payload)
    assert verify(database.connection) == []


def test_the_revision_of_the_list_moves_with_each_change(store, clock):
    seen = {store.workflow_run_list_revision()}
    changes = [
        lambda: running(store),
        lambda: store.record_run_event("run-1", "custom"),
        lambda: store.reserve_workflow_run(new_run("run-2")),
        lambda: store.cancel_workflow_run("run-1"),
        lambda: store.delete_workflow_run("run-2"),
    ]
    for change in changes:
        clock.now += 1
        change()
        seen.add(store.workflow_run_list_revision())
    assert len(seen) == len(changes) + 1
    clock.now += 1
    store.reserve_workflow_run(new_run("run-3"))
    assert [run.run_id for run in store.list_workflow_runs()] == ["run-3", "run-1"]
    assert [run.run_id for run in store.list_workflow_runs(1)] == ["run-3"]


def test_bookkeeping_of_another_implementation_is_settled(store, database):
    store.reserve_workflow_run(new_run("run-1"))
    story, source = Story(database.connection), life_of(store, "run-1").row.resource_id
    effect = story.effect(source, "run-1:waiting", "pending", (), kind="run.park_queue")
    assert store.list_run_effects() == [("run-1", "run.park_queue")]
    assert not store.settle_run_effect("run-1", "run.settle_queue")
    assert store.settle_run_effect("run-1", "run.park_queue")
    assert not store.settle_run_effect("run-1", "run.park_queue")
    assert store.list_run_effects() == []
    row = database.connection.execute(
        "SELECT e.status, e.settled_at, v.event_type, v.actor_type, CAST(b.content AS TEXT) FROM effects e"
        " JOIN events v USING (resource_id) JOIN blobs b ON b.blob_hash = v.payload_hash"
        " WHERE effect_id = ? ORDER BY event_seq DESC",
        (effect,),
    ).fetchone()
    payload = '{"effectType":"run.park_queue","runId":"run-1"}'
    assert row == ("applied", NOW, "effect.applied", "system", payload)
    with pytest.raises(ConflictError, match="no bookkeeping"):
        store.settle_run_effect("run-1", "mail")
    assert verify(database.connection) == []


@pytest.mark.parametrize("call", [
    lambda store: store.get_workflow_run("\ud800"),
    lambda store: store.list_run_events("\ud800"),
    lambda store: store.session_reservation("\ud800"),
    lambda store: store.record_run_event("run-1", "\ud800"),
    lambda store: store.record_run_event("run-1", "x", actor_id="\ud800"),
    lambda store: store.pause_parked_workflow_run("run-1", "\ud800"),
    lambda store: store.resume_paused_interaction("run-1", "\ud800"),
    lambda store: store.cancel_stale_workflow_run("run-1", "\ud800"),
    lambda store: store.fail_workflow_run("run-1", "x", "\ud800"),
    lambda store: store.cancel_workflow_run("\ud800"),
])  # fmt: skip
def test_half_a_character_is_refused(store, call):
    store.reserve_workflow_run(new_run("run-1"))
    with pytest.raises(ManagedResourceError, match="half a character"):
        call(store)
    assert store.get_workflow_run("run-1").revision == 1
