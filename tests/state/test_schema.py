from __future__ import annotations

import re
import sqlite3

import pytest

from pi_workflows_nb.state import shape
from pi_workflows_nb.state.database import schema_text

D = "x'" + "00" * 32 + "'"


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript(schema_text())
    yield made
    made.close()


def test_the_schema_has_the_expected_shape(connection):
    found = shape.shape_of(connection)
    assert shape.difference(found) is None
    assert len(found["tables"]) == 47
    assert len(found["indexes"]) == 38
    assert found["tables"] == shape.expected()["tables"]
    assert found["indexes"] == shape.expected()["indexes"]


def test_every_row_that_a_new_file_has_is_there(connection):
    for table, rows in shape.expected()["seed_rows"].items():
        for row in rows:
            where = " AND ".join(f"{name} = ?" for name in row)
            assert connection.execute(f"SELECT count(*) FROM {table} WHERE {where}", list(row.values())).fetchone() == (
                1,
            )


def test_every_enum_takes_its_values_and_no_other(connection):
    """Each table's own CHECKs are tried on a copy of it that has nothing but those of one column."""
    statements = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    for table, columns in shape.expected()["enums"].items():
        for column, values in columns.items():
            lines = statements[table]
            check = re.search(rf"CHECK \(({column} IN \([^)]*\))\)", lines)
            assert check is not None, (table, column)
            for value in values:
                assert connection.execute(f"SELECT {check[1]} FROM (SELECT ? AS {column})", (value,)).fetchone() == (1,)
            assert connection.execute(f"SELECT {check[1]} FROM (SELECT 'other' AS {column})").fetchone() == (0,)
            assert len(re.findall(r"'[^']*'|\b\d\b", check[1])) == len(values)


RUN = {
    "run_id": "'r'", "resource_id": "'a'", "root_run_id": "'r'", "definition_digest": D, "workflow_ref": "'w'",
    "launch_options_hash": D, "status": "'running'", "input_hash": D, "created_at": "1", "updated_at": "1",
}  # fmt: skip
LEASE = {
    "resource_id": "'a'", "owner_type": "'host'", "owner_id": "'h'", "token_hash": D, "acquired_at": "1",
    "heartbeat_at": "1", "expires_at": "1",
}  # fmt: skip
HOST = {
    "epoch": "1", "host_id": "'h'", "token_hash": D, "pid": "1", "process_start_identity": "'p'", "started_at": "1",
    "heartbeat_at": "1", "expires_at": "1",
}  # fmt: skip
WORKER = {
    "worker_epoch": "'e'", "run_id": "'r'", "generation": "1", "host_epoch": "1", "launch_envelope_hash": D,
    "status": "'starting'", "started_at": "1",
}  # fmt: skip
REQUEST = {
    "request_id": "'q'", "run_id": "'r'", "attempt_id": "'a'", "target_session_id": "'s'", "kind": "'agent'",
    "contract_hash": D, "status": "'pending'", "created_at": "1", "updated_at": "1",
}  # fmt: skip
SETTLED = REQUEST | {"status": "'settled'", "accepted_submission_id": "'x'", "settled_at": "1"}
MESSAGE = {
    "workflow_message_id": "'m'", "run_id": "'r'", "target_session_id": "'s'", "kind": "'step'", "source_id": "'q'",
    "content_hash": D, "order_number": "1", "status": "'sent'", "pi_session_entry_id": "'e'", "created_at": "1",
    "updated_at": "1",
}  # fmt: skip
TURN = {
    "workflow_turn_id": "'t'", "workflow_message_id": "'m'", "run_id": "'r'", "target_session_id": "'s'",
    "state": "'ended'", "stop_reason": "'lost'", "started_at": "1", "ended_at": "1",
}  # fmt: skip
FOLLOW_UP = {
    "follow_up_id": "'f'", "resource_id": "'a'", "run_id": "'r'", "request_id": "'q'", "order_number": "1",
    "target_session_id": "'s'", "actor_type": "'human'", "source_type": "'x'", "prompt_hash": D, "status": "'removed'",
    "reason_hash": D, "created_at": "1", "updated_at": "1",
}  # fmt: skip
RESOLUTION = {
    "decision_id": "'d'", "outcome": "'accepted'", "provenance": "'human'", "response_hash": D, "request_digest": D,
    "resolved_at": "1",
}  # fmt: skip
BLOB = {"blob_hash": D, "media_type": "'text/plain'", "byte_length": "1", "content": "x'01'", "created_at": "1"}
VIEW = {"run_id": "'r'", "presentation_revision": "3", "retained_from_revision": "1", "updated_at": "1"}
CONTENT = {
    "run_id": "'r'", "content_hash": D, "media_type": "'text/plain'", "byte_length": "1", "content": "x'01'",
    "created_at": "1",
}  # fmt: skip

REFUSED = [
    ("runs", RUN, {"finished_at": "1"}),
    ("runs", RUN, {"status": "'waiting'"}),
    ("runs", RUN, {"status": "'completed'"}),
    ("runs", RUN, {"parent_run_id": "'p'"}),
    ("runs", RUN, {"lineage_kind": "'continuation'"}),
    ("runs", RUN, {"parent_run_id": "'p'", "lineage_kind": "'restart'"}),
    ("runs", RUN, {"parent_terminal_fingerprint": D}),
    ("runs", RUN, {"restart_number": "1"}),
    ("runs", RUN, {"parent_run_id": "'p'", "lineage_kind": "'restart'", "parent_terminal_fingerprint": "x'00'"}),
    ("runs", RUN, {"paused": "2"}),
    *[("leases", LEASE, {name: "NULL"}) for name in LEASE if name != "resource_id"],
    *[("workflow_host_state", HOST, {name: "NULL"}) for name in HOST if name != "epoch"],
    ("workflow_host_state", HOST, {"pid": "0"}),
    ("workflow_host_state", HOST, {"id": "2"}),
    ("run_workers", WORKER, {"pid": "1"}),
    ("run_workers", WORKER, {"process_start_identity": "'p'"}),
    ("interactive_requests", REQUEST, {"status": "'settled'"}),
    ("interactive_requests", REQUEST, {"accepted_submission_id": "'x'", "settled_at": "1"}),
    ("interactive_requests", SETTLED, {"settled_at": "NULL"}),
    ("interactive_requests", REQUEST, {"consumed_at": "1"}),
    ("workflow_messages", MESSAGE, {"pi_session_entry_id": "NULL"}),
    ("workflow_messages", MESSAGE, {"status": "'pending'"}),
    ("workflow_turns", TURN, {"stop_reason": "NULL"}),
    ("workflow_turns", TURN, {"ended_at": "NULL"}),
    ("workflow_turns", TURN, {"state": "'started'"}),
    ("workflow_follow_ups", FOLLOW_UP, {"reason_hash": "NULL"}),
    ("workflow_follow_ups", FOLLOW_UP, {"status": "'queued'"}),
    ("human_decision_resolutions", RESOLUTION, {"reason": "'r'"}),
    ("human_decision_resolutions", RESOLUTION, {"response_hash": "NULL"}),
    ("human_decision_resolutions", RESOLUTION, {"outcome": "'cancelled'", "reason": "'r'"}),
    ("human_decision_resolutions", RESOLUTION, {"request_digest": "x'00'"}),
    ("blobs", BLOB, {"byte_length": "2"}),
    ("blobs", BLOB, {"blob_hash": "x'00'"}),
    ("blobs", BLOB, {"content": "'text'"}),
    ("viewer_runs", VIEW, {"retained_from_revision": "4"}),
    ("viewer_runs", VIEW, {"retained_from_revision": "0"}),
    ("run_view_content", CONTENT, {"byte_length": "2"}),
]


@pytest.mark.parametrize(("table", "good", "change"), REFUSED, ids=lambda value: "-".join(value) if value else "x")
def test_no_row_can_contradict_itself(connection, table, good, change):
    connection.execute("DELETE FROM workflow_host_state")

    def insert(row):
        connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})")

    connection.execute("BEGIN")
    insert({"id": "1"} | good if table == "workflow_host_state" else good)
    connection.execute("ROLLBACK")
    with pytest.raises(sqlite3.IntegrityError, match=r"CHECK constraint|cannot store"):
        insert({"id": "1"} | good | change if table == "workflow_host_state" else good | change)


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DROP INDEX runs_parent_idx", "index runs_parent_idx is missing"),
        ("DROP TABLE channel_cursors", "table channel_cursors is missing"),
        ("CREATE TABLE extra (a)", "table extra is too much"),
        ("CREATE INDEX extra ON runs (title)", "index extra is too much"),
        ("ALTER TABLE runs ADD COLUMN extra TEXT", "columns of the table runs"),
        ("DROP INDEX leases_expires_idx; CREATE INDEX leases_expires_idx ON leases (expires_at)", "where of the index"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END", "trigger t is too much"),
        ("CREATE VIEW v AS SELECT 1", "view v is too much"),
    ],
)
def test_another_shape_is_named(connection, statement, word):
    connection.executescript(statement)
    assert word in shape.difference(shape.shape_of(connection))


def test_other_text_of_the_same_meaning_is_the_same_shape():
    text = re.sub(r"--[^\n]*", "", schema_text()).replace("CREATE", "create").replace("WHERE", "where\n ")
    other = sqlite3.connect(":memory:")
    other.executescript(re.sub(r"[ \n]+", " ", text))
    other.execute("ANALYZE")
    assert shape.difference(shape.shape_of(other)) is None
    other.close()
