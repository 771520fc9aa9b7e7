"""A store sees its project; a store of all projects, or one for reading, changes nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError, ProjectNotRegisteredError, ReadOnlyStoreError
from pi_workflows_nb.wire.resource_status import Status
from tests.resource_managers.conftest import LEASE


def changes(store, claim, uid):
    """Every operation that writes."""
    return [
        lambda: store.put_resource("manager", "key", 2),
        lambda: store.update_status("manager", "key", claim, Status(), expected_resource_version=2),
        lambda: store.request_deletion("manager", "key"),
        lambda: store.update_finalizers("manager", "key", ["f"], expected_resource_version=2),
        lambda: store.delete_resource("manager", "key", claim, expected_resource_version=2),
        lambda: store.enqueue("manager", "key"),
        lambda: store.claim_next(["manager"], "owner", LEASE),
        lambda: store.claim_next([], "owner", LEASE),
        lambda: store.renew_claim(claim, LEASE),
        lambda: store.settle_claim(claim),
        lambda: store.requeue_claim(claim),
        lambda: store.reserve_effect(uid, "e", claim, kind="k", request_fingerprint="0", generation=1),
        lambda: store.update_effect(uid, "e", claim, "applied"),
        lambda: store.reserve_workflow(uid, "c", claim, workflow="w", input_fingerprint=b"0" * 32),
        lambda: store.update_workflow("request", claim, "running"),
        lambda: store.complete_workflow("request", "failed"),
        lambda: store.record_event("manager", "key", "noted"),
    ]


def lists(store, uid):
    return [
        store.list_resources(), store.get_resource_by_uid(uid), store.list_effects(), store.list_workflows(),
        store.list_events(),
    ]  # fmt: skip


@pytest.fixture
def full(store, claimed):
    """The uid of a claimed resource with an effect and a child."""
    uid = store.get_resource("manager", "key").uid
    store.reserve_effect(uid, "e", claimed, kind="k", request_fingerprint="0", generation=1)
    store.reserve_workflow(uid, "c", claimed, workflow="w", input_fingerprint=b"0" * 32)
    return uid


def test_a_project_is_registered_by_its_real_path(store, database, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    again = SqliteResourceManagerStore(database, tmp_path / "link")
    absent = SqliteResourceManagerStore(database, tmp_path / "absent")
    assert again.project_id == store.project_id == identities.project_id(tmp_path)
    rows = dict(database.connection.execute("SELECT project_id, canonical_path FROM projects").fetchall())
    assert rows == {store.project_id: str(tmp_path.resolve()), absent.project_id: str(tmp_path / "absent")}


def test_projects_do_not_see_each_other(store, database, full, claimed, tmp_path):
    other = SqliteResourceManagerStore(database, tmp_path / "other")
    assert lists(other, full) == [[], None, [], [], []]
    assert other.list_queue() == []
    assert other.get_resource("manager", "key") is None
    assert other.claim_next(["manager"], "owner", LEASE) is None
    assert not other.settle_claim(claimed)
    with pytest.raises(ManagedResourceNotFoundError):
        other.reserve_effect(full, "e", claimed, kind="k", request_fingerprint="0", generation=1)
    mine = other.put_resource("manager", "key", 5)
    assert store.get_resource("manager", "key").spec == {"size": 1}
    assert store.get_resource_by_uid(mine.uid) is None


def test_a_store_of_all_projects_lists_and_reads_by_uid(store, database, full, claimed, tmp_path):
    other = SqliteResourceManagerStore(database, tmp_path / "other")
    other.put_resource("manager", "key", 5)
    everything = SqliteResourceManagerStore(database)
    assert [each.spec for each in everything.list_resources()] in ([{"size": 1}, 5], [5, {"size": 1}])
    assert len(everything.list_events()) == 3
    assert len(everything.list_effects()) == len(everything.list_workflows()) == 1
    assert everything.get_resource_by_uid(full).key == "key"
    assert everything.get_resource("manager", "key") is None
    for call in (*changes(everything, claimed, full), everything.list_queue):
        with pytest.raises(ProjectNotRegisteredError, match="project not registered"):
            call()


def test_a_store_for_reading_changes_nothing(store, state_file, full, claimed, tmp_path):
    queue, seen = store.list_queue(), lists(store, full)
    with closing(open_read_only(state_file, live=True)) as connection:
        reading = SqliteResourceManagerStore(connection, tmp_path)
        for call in changes(reading, claimed, full):
            with pytest.raises(ReadOnlyStoreError, match="opened for reading"):
                call()
        assert lists(reading, full) == seen
        assert reading.list_queue() == queue
        unknown = SqliteResourceManagerStore(connection, tmp_path / "unknown")
        assert lists(unknown, full) == [[], None, [], [], []]
        assert unknown.list_queue() == []


def test_a_store_opens_and_closes_its_own_file(tmp_path):
    path = tmp_path / "own.sqlite"
    with SqliteResourceManagerStore.open(path, tmp_path) as store:
        store.put_resource("manager", "key", 1)
    before = path.read_bytes()
    with SqliteResourceManagerStore.open(path, tmp_path, read_only=True) as store:
        assert store.get_resource("manager", "key").spec == 1
    assert path.read_bytes() == before
