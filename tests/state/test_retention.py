"""Which trees of runs may leave a file, what leaves with them, and what keeps them."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import blob_sweep, blobs, mutation, retention
from pi_workflows_nb.state.verify import verify
from tests.state.files import NOW, Story, tell
from tests.state.lives import Life

LATER = NOW + 1
OWNED_BY_NO_RUN = {
    "blobs", "channel_cursors", "channel_messages", "channels", "controller_finalizers", "controller_queue",
    "controller_resources", "controller_workflows", "projects", "schema_meta", "session_terminal_views",
    "workflow_definitions", "workflow_host_state",
}  # fmt: skip


def leave(database, root, before=LATER, now=LATER):
    database.connection.execute("PRAGMA foreign_keys = OFF")
    with database.transaction() as c:
        gone = retention.delete(c, root, before, now)
    database.connection.execute("PRAGMA foreign_keys = ON")
    return gone


def sweep(database, spared=frozenset()):
    connection = database.connection
    blob_sweep.watch(connection)
    dead = blob_sweep.Dead(database.path)
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
        _, digests = dead.after(0)
        with database.transaction() as c:
            blob_sweep.delete(c, digests, set(spared))
    finally:
        dead.close()
        blob_sweep.unwatch(connection)
        connection.execute("PRAGMA foreign_keys = ON")


def swept(database, spared=frozenset()):
    for _ in sweep(database, spared):
        pass


def rows(database):
    names = database.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    counted = {name: database.connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in names}
    return {name: count for name, count in counted.items() if count and not name.startswith("sqlite")}


@pytest.fixture
def told(database):
    with database.transaction() as connection:
        tell(connection)
    return database


def test_what_is_over_leaves_and_the_rest_stays(told):
    found = {tree.root: tree.kept_by for _, tree in retention.candidates(
        told.connection, LATER, 0, 100, retention.tangled(told.connection), LATER
    )}  # fmt: skip
    assert {root for root, kept in found.items() if kept is None} == {"answered", "cancelled", "done", "failed", "late"}
    assert set(found) >= {"asks", "awaits", "unsure"}
    for root, kept in found.items():
        assert (leave(told, root) is None) == (kept is not None)
    assert verify(told.connection) == []
    left = {name for (name,) in told.connection.execute("SELECT run_id FROM runs")}
    assert left == {"ready", "busy", "live", "parked", "asks", "asleep", "awaits", "unsure"}


def test_a_tree_leaves_with_everything_that_is_its_own(database):
    before = rows(database)
    one = Life(database)
    one.take()
    one.run_one()
    one.asks()
    one.answer()
    two = Life(database, "run-2", made=True)
    two.take()
    two.run_one()
    two.ends()
    assert leave(database, "run-1").runs == 2
    with database.transaction() as c:
        retention.delete_definitions(c)
    swept(database)
    after = rows(database)
    after.pop("projects")
    assert after == before
    assert verify(database.connection) == []


def test_every_table_is_of_a_run_or_named_here(database):
    named = {statement.split()[2] if statement.startswith("DELETE") else statement.split()[1]
             for statement in retention._DELETIONS}  # fmt: skip
    tables = {name for (name,) in database.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert named | OWNED_BY_NO_RUN == tables - {"sqlite_sequence"}


KEPT = {
    "an open turn": """INSERT INTO workflow_turns SELECT 't', workflow_message_id, run_id, 's', 'started', NULL, NULL,
        1, NULL FROM workflow_messages""",
    "a pending message": "UPDATE workflow_messages SET status = 'pending', pi_session_entry_id = NULL",
    "an effect that is not settled": "UPDATE effects SET status = 'ambiguous' WHERE status = 'applied'",
    "a live claim": f"""UPDATE leases SET owner_type = 'host', owner_id = 'h', token_hash = zeroblob(32),
        acquired_at = 1, heartbeat_at = 1, expires_at = {LATER + 1}
        WHERE resource_id = (SELECT resource_id FROM runs WHERE run_id = 'done')""",
    "a live runner": "UPDATE run_workers SET status = 'running' WHERE run_id = 'done'",
    "a live queue row": "UPDATE run_queue SET status = 'parked' WHERE run_id = 'done'",
    "a reference from outside": "UPDATE run_steps SET attempt_id = 'attempt-1' WHERE run_id = 'failed'",
}


@pytest.mark.parametrize("reason", KEPT)
def test_what_protects_a_tree(told, reason):
    with told.transaction() as c:
        Story(c).insert(
            "workflow_messages", workflow_message_id="m", run_id="done", target_session_id="s", kind="terminal",
            source_id="x", content_hash=blobs.put_text(c, "x", NOW), order_number=1, status="sent",
            pi_session_entry_id="e", created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        assert retention.look_at(c, "done", LATER, LATER).kept_by is None
        c.execute("PRAGMA ignore_check_constraints = ON")
        assert c.execute(KEPT[reason]).rowcount == 1
        c.execute("PRAGMA ignore_check_constraints = OFF")
    assert retention.look_at(told.connection, "done", LATER, LATER).kept_by == reason
    assert leave(told, "done") is None


def test_what_ended_later_stays(told):
    assert retention.look_at(told.connection, "done", NOW, LATER).kept_by == (
        "a run that is not over, or not for long enough"
    )


def test_a_run_of_a_managed_resource_stays(told):
    with told.transaction() as c:
        story = Story(c)
        resource = mutation.create_aggregate(c, "controller", "p:m:k", NOW)
        story.insert(
            "controller_resources", controller_resource_id="c", resource_id=resource, controller_name="m",
            resource_key="k", uid="u", generation=1, spec_hash=story.json(1), status_hash=story.json(1),
            created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        story.insert(
            "controller_workflows", request_id="q", controller_resource_id="c", request_key="k", workflow_name="w",
            input_fingerprint=bytes(32), run_id="done", status="succeeded", created_at=NOW, updated_at=NOW,
        )  # fmt: skip
    assert leave(told, "done") is None


def test_a_run_that_names_a_root_it_does_not_descend_from_keeps_that_tree(told):
    told.connection.execute("UPDATE runs SET root_run_id = 'done' WHERE run_id = 'late'")
    tangled = retention.tangled(told.connection)
    assert retention.look_at(told.connection, "done", LATER, LATER, tangled).kept_by == "a reference from outside"


def test_the_sweep_takes_what_nothing_refers_to_and_spares_sources(told):
    with told.transaction() as c:
        lone, held = blobs.put_text(c, "lone", NOW), blobs.put_text(c, "held", NOW)
    count = rows(told)["blobs"]
    swept(told, {held})
    left = {digest for (digest,) in told.connection.execute("SELECT blob_hash FROM blobs")}
    assert (lone in left, held in left, len(left)) == (False, True, count - 1)
    assert verify(told.connection) == []


def test_what_is_stored_again_while_it_is_swept_stays(told):
    with told.transaction() as c:
        digest = blobs.put_text(c, "again", NOW)
    for _ in sweep(told):
        with told.transaction() as c:
            blobs.put_text(c, "again", NOW)
    assert told.connection.execute("SELECT 1 FROM blobs WHERE blob_hash = ?", (digest,)).fetchone()


def test_every_column_that_refers_to_blobs_is_asked(database):
    found = blob_sweep.references(database.connection)
    assert len(found) > 40
    assert ("run_steps", "output_override_hash") in found
