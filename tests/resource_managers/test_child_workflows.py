"""A resource asks for a workflow once, and is woken by its end."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import ConflictError, ManagedResourceError, NotFoundError, WorkflowRequestConflictError
from tests.resource_managers.conftest import LEASE
from tests.state.files import Story

INPUT = b"1" * 32


@pytest.fixture
def uid(store, claimed):
    return store.get_resource("manager", "key").uid


@pytest.fixture
def child(store, claimed, uid):
    return store.reserve_workflow(uid, "build", claimed, workflow="w", input_fingerprint=INPUT)[0]


def columns(database):
    return database.connection.execute("SELECT reserved_run_id, run_id FROM controller_workflows").fetchone()


def test_a_new_child_is_pending(store, uid, child):
    assert (child.resource_uid, child.request_key, child.workflow, child.input_fingerprint) == (
        uid, "build", "w", INPUT,
    )  # fmt: skip
    assert (child.run_id, child.state, child.attempt, child.error) == (None, "pending", 0, None)
    assert store.list_workflows() == store.list_workflows(uid) == [child]
    assert store.get_resource("manager", "key").resource_version == 2


def test_one_child_for_each_key(store, claimed, uid, child):
    assert store.reserve_workflow(uid, "build", claimed, workflow="w", input_fingerprint=INPUT) == (child, False)
    for wish in ({"workflow": "x", "input_fingerprint": INPUT}, {"workflow": "w", "input_fingerprint": b"2" * 32}):
        with pytest.raises(WorkflowRequestConflictError, match="needs a key of its own"):
            store.reserve_workflow(uid, "build", claimed, **wish)
    assert store.reserve_workflow(uid, "Build", claimed, workflow="x", input_fingerprint=INPUT)[1]


def test_a_run_is_reserved_before_it_is_there(store, database, claimed, child):
    running = store.update_workflow(child.request_id, claimed, "running", run_id="r1", attempt=1)
    assert (running.run_id, running.state, running.attempt) == ("r1", "running", 1)
    assert columns(database) == ("r1", None)
    Story(database.connection).run("r1", "running", "running", held=True)
    assert store.update_workflow(child.request_id, claimed, "running", run_id="r1").attempt == 1
    assert columns(database) == ("r1", "r1")
    assert store.get_resource("manager", "key").resource_version == 2


def test_an_interrupted_child_gets_another_run(store, database, claimed, child):
    Story(database.connection).run("r1", "failed", "failed")
    store.update_workflow(child.request_id, claimed, "running", run_id="r1", attempt=1)
    store.complete_workflow(child.request_id, "interrupted", run_id="r1", error="killed")
    again = store.update_workflow(child.request_id, claimed, "running", run_id="r2", attempt=2)
    assert (again.run_id, again.attempt, again.error) == ("r2", 2, None)
    assert columns(database) == ("r2", None)
    done = store.complete_workflow(child.request_id, "succeeded", run_id="r2")
    assert (done.state, done.run_id) == ("succeeded", "r2")


@pytest.mark.parametrize("state", ["succeeded", "failed", "waiting", "interrupted"])
def test_the_end_of_a_run_wakes_the_resource(store, claimed, child, state):
    store.update_workflow(child.request_id, claimed, "running", run_id="r1", attempt=1)
    done = store.complete_workflow(child.request_id, state, run_id="r1", error="why")
    assert (done.state, done.error, done.attempt) == (state, "why", 1)
    event = store.list_events()[0]
    assert event.type == "workflow_state_changed"
    assert event.payload == {"requestId": child.request_id, "runId": "r1", "state": state}
    assert store.get_resource("manager", "key").resource_version == claimed.resource_version + 1
    assert store.settle_claim(claimed)
    assert store.claim_next(["manager"], "owner", LEASE) is not None


def test_it_needs_no_claim(store, database, claimed, child):
    store.settle_claim(claimed)
    assert store.list_queue() == []
    store.complete_workflow(child.request_id, "failed")
    assert len(store.list_queue()) == 1
    assert database.connection.execute(
        "SELECT actor_type, actor_id, lease_generation FROM events ORDER BY event_seq DESC"
    ).fetchone() == ("system", None, None)
    assert store.list_events()[0].payload["runId"] is None


def test_what_is_no_end(store, claimed, child):
    store.update_workflow(child.request_id, claimed, "running", run_id="r1", attempt=1)
    for state in ("pending", "running"):
        with pytest.raises(ConflictError, match=state):
            store.complete_workflow(child.request_id, state)
    with pytest.raises(ConflictError, match="is r1, not r2"):
        store.complete_workflow(child.request_id, "succeeded", run_id="r2")
    for call in (
        lambda: store.complete_workflow(child.request_id, "done"),
        lambda: store.update_workflow(child.request_id, claimed, "done"),
        lambda: store.update_workflow(child.request_id, claimed, "running", run_id="no run"),
        lambda: store.update_workflow(child.request_id, claimed, "running", attempt=-1),
    ):
        with pytest.raises(ManagedResourceError):
            call()
    with pytest.raises(NotFoundError):
        store.complete_workflow("nobody", "failed")
    assert store.list_workflows()[0].state == "running"
