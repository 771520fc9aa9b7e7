"""Runs are made, adopted, continued, restarted and deleted through the store of a project."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state import mutation, transitions
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify
from pi_workflows_nb.wire.errors import (
    ClaimTargetError,
    ConflictError,
    ManagedResourceError,
    NotFoundError,
    ProjectNotRegisteredError,
    ReadOnlyStoreError,
    StaleClaimError,
)
from tests.resource_managers.conftest import LEASE, new_run
from tests.resource_managers.runs import HOST, acting, asking, life_of, running
from tests.state.files import NOW, Story
from tests.state.lives import end, move


def test_a_run_is_reserved_and_read(store):
    made = store.reserve_workflow_run(new_run("run-1", title="T"))
    assert (made.status, made.queue_status, made.revision, made.generation) == ("queued", "queued", 1, 0)
    assert (made.project_id, made.workflow, made.workflow_ref) == (store.project_id, "w", "inline:w")
    assert (made.title, made.mode, made.session_id, made.initialized) == ("T", "headless", None, False)
    assert (made.available_at, made.created_at, made.finished_at) == (NOW, NOW, None)
    assert store.get_workflow_run("run-1") == made
    assert store.get_workflow_run("run-2") is None
    with pytest.raises(ConflictError, match="exists already"):
        store.reserve_workflow_run(new_run("run-1"))


def test_a_second_run_of_a_session_stands_in_line(store):
    assert store.session_reservation("s") is None
    assert store.reserve_workflow_run(new_run("run-1", "s")).session_id == "s"
    assert store.session_reservation("s") == "run-1"
    busy = store.prepare_or_adopt_workflow_run(new_run("run-2", "s"), HOST, LEASE)
    assert (busy.claim, busy.adopted, busy.run.queue_status, busy.run.detail) == (None, False, "parked", "sessionBusy")
    assert store.cancel_workflow_run("run-1")
    assert store.session_reservation("s") == "run-2"


def test_what_was_prepared_is_claimed_and_then_adopted(store, database):
    first = store.prepare_or_adopt_workflow_run(new_run("run-1"), HOST, LEASE)
    assert not first.adopted
    assert (first.run.status, first.run.queue_status, first.run.owner_id) == ("running", "starting", HOST)
    store.verify_workflow_run_claim("run-1", first.claim)
    again = store.prepare_or_adopt_workflow_run(new_run("run-1"), HOST, LEASE)
    assert again.adopted
    assert (again.claim, again.run) == (None, first.run)
    assert verify(database.connection) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"workflow_name": "v", "snapshot": b"{}"}, "workflow, definition"),
        ({"input": b'{"n":2}'}, "input"),
        ({"launch_options": b'{"tags":["x"]}'}, "launch options"),
        ({"source": {"type": "builtin", "ref": "r", "revision": "01"}}, "kind of source, source, source revision"),
        ({"session_id": "s"}, "session"),
        ({"mode": "interactive"}, "mode"),
        ({"mounted": [{"mountPath": "a", "ref": "b", "revision": "0", "type": "file"}]}, "mounted sources"),
    ],
)
def test_what_was_prepared_otherwise_is_told(store, given, named):
    store.prepare_or_adopt_workflow_run(new_run("run-1"), HOST, LEASE)
    with pytest.raises(ConflictError, match=rf"prepared otherwise \(another {named}\)"):
        store.prepare_or_adopt_workflow_run(dataclasses.replace(new_run("run-1"), **given), HOST, LEASE)


def test_a_continuation_is_not_adopted_as_a_run_of_its_own(store):
    asking(store)
    store.continue_workflow_run("run-1", "run-2", "yes")
    with pytest.raises(ConflictError, match="another session, parent"):
        store.prepare_or_adopt_workflow_run(new_run("run-2"), HOST, LEASE)


def test_an_answer_makes_a_continuation(store, database):
    asking(store)
    made = store.continue_workflow_run("run-1", "run-2", {"go": True})
    assert (made.parent_run_id, made.root_run_id, made.lineage) == ("run-1", "run-1", "continuation")
    parent = store.get_workflow_run("run-1")
    assert (parent.status, parent.queue_status) == ("waiting", "done")
    assert store.list_run_events("run-1")[-1].payload == {"continuationRunId": "run-2"}
    with pytest.raises(ConflictError, match="was answered"):
        store.continue_workflow_run("run-1", "run-3", None)
    assert verify(database.connection) == []


def test_a_continuation_needs_an_id_of_its_own(store):
    asking(store)
    with pytest.raises(ConflictError, match="exists already"):
        store.continue_workflow_run("run-1", "run-1", None)
    with pytest.raises(ManagedResourceError, match="no id of a run"):
        store.continue_workflow_run("run-1", "not one", None)


def test_a_run_that_is_over_is_restarted(store, database):
    store.reserve_workflow_run(new_run("run-1"))
    assert store.fail_workflow_run("run-1", "boom", "nodeFailed")
    made = store.restart_workflow_run("run-1")
    assert (made.lineage, made.restart_number, made.parent_run_id) == ("restart", 1, "run-1")
    with pytest.raises(ConflictError, match="cannot be restarted"):
        store.restart_workflow_run("run-1")
    assert verify(database.connection) == []


def test_a_run_is_made_due_earlier(store, clock):
    claim = running(store)
    store.park_workflow_run("run-1", claim, NOW + 500)
    assert store.claim_next_workflow_run(HOST, LEASE) is None
    assert store.enqueue_workflow_run("run-1", NOW + 900)
    assert store.get_workflow_run("run-1").available_at == NOW + 500
    assert store.enqueue_workflow_run("run-1")
    assert store.get_workflow_run("run-1").available_at == NOW
    before = store.get_workflow_run("run-1").revision
    run_id, claim = store.claim_next_workflow_run(HOST, LEASE)
    assert (run_id, store.get_workflow_run("run-1").revision) == ("run-1", before + 1)
    assert not store.enqueue_workflow_run("run-1")


def test_no_time_starts_what_sleeps_or_is_paused(store):
    claim = running(store)
    life = life_of(store, "run-1", claim)
    life.step(move(end=end("sleeping", due_at=NOW + 9000, detail="nap")))
    assert not store.enqueue_workflow_run("run-1")
    assert store.get_workflow_run("run-1").available_at == NOW + 9000
    store.reserve_workflow_run(new_run("run-2"))
    with store._transaction() as connection:
        transitions.pause(connection, "run-2", NOW, "me")
    assert not store.enqueue_workflow_run("run-2")


def test_a_run_that_led_to_nothing_is_deleted_with_all_that_is_its_own(store, database):
    before = counts(database)
    first = store.prepare_or_adopt_workflow_run(new_run("run-1", "s", settings=b"{}"), HOST, LEASE)
    store.reserve_workflow_run(new_run("run-2", "s"))
    with pytest.raises(ConflictError, match="held by host-a"):
        store.delete_workflow_run("run-1")
    store.delete_workflow_run("run-1", first.claim)
    assert store.get_workflow_run("run-1") is None
    assert store.session_reservation("s") == "run-2", "the place goes to the next"
    store.delete_workflow_run("run-2")
    shared = {"blobs", "workflow_definitions", "sqlite_sequence"}
    assert {name: rows for name, rows in counts(database).items() if name not in shared} == {
        name: rows for name, rows in before.items() if name not in shared
    }
    assert verify(database.connection) == []


def counts(database):
    names = [name for (name,) in database.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: database.connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def test_a_deleted_run_takes_what_it_asked_and_did_along(store, database):
    claim = running(store)
    story, life = Story(database.connection), life_of(store, "run-1", claim)
    with store._transaction():
        content = story.json({})
        source = life.row.resource_id
        story.effect(source, "k", "applied", ("applied",))
        for table, type_, row in (
            ("workflow_follow_ups", "follow_up", {"follow_up_id": "f", "run_id": "run-1", "request_id": "q",
             "order_number": 1, "target_session_id": "s", "actor_type": "session", "source_type": "session",
             "prompt_hash": content, "status": "queued", "created_at": NOW, "updated_at": NOW}),
            ("human_decisions", "decision", {"decision_id": "d", "run_id": "run-1", "attempt_id": "run-1-n-1",
             "audience": "a", "title": "t", "subject_hash": content, "presentation_hash": content,
             "choices_hash": content, "request_digest": bytes(32), "presentation_revision": 1,
             "request_hash": content, "created_at": NOW}),
            ("session_segments", "session", {"segment_id": "g", "run_id": "run-1", "session_id": "s",
             "status": "recording", "created_at": NOW}),
        ):  # fmt: skip
            resource_id = mutation.create_aggregate(database.connection, type_, f"{type_}-k", NOW, revision=0)
            story.event(resource_id, "noted")
            story.insert(table, resource_id=resource_id, **row)
    store.delete_workflow_run("run-1", claim)
    left = counts(database)
    assert {table for table, rows in left.items() if rows} <= {
        "schema_meta", "projects", "blobs", "workflow_definitions", "workflow_host_state", "sqlite_sequence",
    }  # fmt: skip
    assert database.connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_what_others_hang_on_is_not_deleted(store, database):
    asking(store)
    store.continue_workflow_run("run-1", "run-2", None)
    with pytest.raises(ConflictError, match="another run follows it"):
        store.delete_workflow_run("run-1")
    with pytest.raises(ConflictError, match="continues or restarts"):
        store.delete_workflow_run("run-2")
    resource = store.put_resource("manager", "key", 1)
    work = store.claim_next(["manager"], "owner", LEASE)
    child, _ = store.reserve_workflow(resource.uid, "c", work, workflow="w", input_fingerprint=b"0" * 32)
    store.update_workflow(child.request_id, work, "running", run_id="run-3", attempt=1)
    store.reserve_workflow_run(new_run("run-3"))
    with pytest.raises(ConflictError, match="child workflow of a managed resource"):
        store.delete_workflow_run("run-3")


def test_what_may_have_touched_the_world_is_not_deleted(store):
    claim = running(store)
    acting(store, "run-1", claim)
    with pytest.raises(ConflictError, match="an effect of it is not settled"):
        store.delete_workflow_run("run-1", claim)
    other = running(store, "run-2")
    with store._transaction() as connection:
        Story(connection).runner("run-2", "running")
    with pytest.raises(ConflictError, match="its runner lives"):
        store.delete_workflow_run("run-2", other)


@pytest.mark.parametrize("name", ["", "a b", "-a", "é", "a" * 201, "\ud800", None])
def test_what_is_no_id_of_a_run(store, name):
    for call in (
        lambda: store.reserve_workflow_run(new_run(name)),
        lambda: store.prepare_or_adopt_workflow_run(new_run(name), HOST, LEASE),
    ):
        with pytest.raises(ManagedResourceError):
            call()
    assert store.list_workflow_runs() == []


@pytest.mark.parametrize("given", [{"session_id": "\ud800"}, {"mode": "other"}, {"title": "\ud800"}])
def test_what_a_run_may_not_be(store, given):
    with pytest.raises(ManagedResourceError):
        store.reserve_workflow_run(new_run("run-1", **given))


def changes(store, claim):
    """Every operation that changes a run."""
    return [
        lambda: store.reserve_workflow_run(new_run("run-9")),
        lambda: store.prepare_or_adopt_workflow_run(new_run("run-9"), HOST, LEASE),
        lambda: store.claim_next_workflow_run(HOST, LEASE),
        *changes_of_one(store, "run-1", claim),
    ]


def changes_of_one(store, run_id, claim):
    return [
        lambda: store.continue_workflow_run(run_id, "run-9", None),
        lambda: store.restart_workflow_run(run_id),
        lambda: store.enqueue_workflow_run(run_id),
        lambda: store.record_run_event(run_id, "noted"),
        lambda: store.settle_run_effect(run_id, "run.park_queue"),
        lambda: store.claim_workflow_run(run_id, HOST, LEASE),
        lambda: store.claim_workflow_run_for_interaction_validation(run_id, HOST, LEASE),
        lambda: store.claim_workflow_run_for_control(run_id, HOST, LEASE),
        lambda: store.pause_parked_workflow_run(run_id),
        lambda: store.resume_paused_interaction(run_id),
        lambda: store.cancel_workflow_run(run_id),
        lambda: store.cancel_stale_workflow_run(run_id),
        *changes_under_claim(store, run_id, claim),
    ]


def changes_under_claim(store, run_id, claim):
    return [
        lambda: store.delete_workflow_run(run_id, claim),
        lambda: store.record_run_event(run_id, "noted", claim=claim),
        lambda: store.mark_workflow_run_running(run_id, claim),
        lambda: store.release_workflow_run_claim(run_id, claim),
        lambda: store.park_workflow_run(run_id, claim),
        lambda: store.park_workflow_run_for_source_change(run_id, claim, "x"),
        lambda: store.park_workflow_run_for_runner_no_progress(run_id, claim, "x"),
        lambda: store.park_workflow_run_for_ambiguous_effect(run_id, claim),
        lambda: store.begin_workflow_run_interaction_timeout(run_id, claim, "r"),
        lambda: store.complete_workflow_run(run_id, claim),
        lambda: store.fail_workflow_run(run_id, "x", claim=claim),
        lambda: store.cancel_workflow_run(run_id, claim),
    ]


def test_stores_of_other_projects_and_of_all_change_no_run(store, database, tmp_path):
    claim = running(store)
    other, everything = (SqliteResourceManagerStore(database, where) for where in (tmp_path / "other", None))
    before = list(database.connection.iterdump())
    for call in changes_of_one(other, "run-1", claim):
        with pytest.raises(NotFoundError, match="in this project"):
            call()
    assert other.get_workflow_run("run-1") is None
    assert other.list_workflow_runs() == other.list_run_events("run-1") == []
    assert other.claim_next_workflow_run(HOST, LEASE) is None
    for call in changes(everything, claim):
        with pytest.raises(ProjectNotRegisteredError):
            call()
    assert everything.get_workflow_run("run-1") == store.get_workflow_run("run-1")
    assert everything.list_workflow_runs() == store.list_workflow_runs()
    assert list(database.connection.iterdump()) == before


def test_a_store_for_reading_changes_no_run(store, state_file, tmp_path):
    claim = running(store)
    with closing(open_read_only(state_file, live=True)) as connection:
        reading = SqliteResourceManagerStore(connection, tmp_path, clock=store._clock)
        for call in (*changes(reading, claim), lambda: reading.renew_workflow_run_claim("run-1", claim)):
            with pytest.raises(ReadOnlyStoreError):
                call()
        assert reading.get_workflow_run("run-1") == store.get_workflow_run("run-1")
        assert reading.list_run_events("run-1") == store.list_run_events("run-1")
        assert reading.workflow_run_list_revision() == store.workflow_run_list_revision()
        reading.verify_workflow_run_claim("run-1", claim)
        assert reading.session_reservation("headless:run-1") is None


def test_a_claim_of_another_run_or_of_earlier_changes_nothing(store, database, clock):
    first = running(store)
    other = running(store, "run-2")
    for stale, error in ((other, ClaimTargetError), (first, StaleClaimError)):
        if stale is first:
            clock.now += LEASE
            assert store.claim_workflow_run("run-1", "host-b", LEASE) is not None
        before = list(database.connection.iterdump())
        for call in (
            *changes_under_claim(store, "run-1", stale),
            lambda stale=stale: store.verify_workflow_run_claim("run-1", stale),
        ):
            with pytest.raises(error):
                call()
        assert list(database.connection.iterdump()) == before
    assert store.renew_workflow_run_claim("run-1", first) is None
