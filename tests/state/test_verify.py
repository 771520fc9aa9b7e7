from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from pi_workflows_nb.state import mutation, run_invariants
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.record_invariants import RULES
from pi_workflows_nb.state.verify import verify
from tests.state.files import NOW, Story, rebuild_original, tell


@pytest.fixture
def told(database):
    with database.transaction() as connection:
        tell(connection)
    return database.connection


def planted(connection, *statements):
    """The findings after faults were planted that no honest connection would let in."""
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        assert connection.execute(statement).rowcount != 0, statement
    connection.execute("PRAGMA ignore_check_constraints = OFF")
    return verify(connection)


def test_an_empty_file_has_no_findings(database):
    assert verify(database.connection) == []


def test_a_whole_story_has_no_findings(told, state_file):
    assert verify(told) == []
    with closing(open_read_only(state_file)) as reading:
        assert verify(reading) == []
        assert not reading.in_transaction


def run_of(name):
    return f"(SELECT resource_id FROM runs WHERE run_id = '{name}')"


HELD = (
    "owner_type = 'host', owner_id = 'h', token_hash = randomblob(32), acquired_at = 1, heartbeat_at = 1,"
    " expires_at = 1"
)
FREE = (
    "owner_type = NULL, owner_id = NULL, token_hash = NULL, acquired_at = NULL, heartbeat_at = NULL, expires_at = NULL"
)
RESTARTED = (
    "UPDATE runs SET lineage_kind = 'restart', restart_number = {}, parent_terminal_fingerprint = zeroblob(32),"
    " parent_run_id = '{}' WHERE run_id = 'failed'"
)
LATE = (
    "INSERT INTO node_attempts(attempt_id, run_id, node_id, attempt_number, node_type, status, created_at,"
    " updated_at) VALUES ('late', 'cancelled', 'a', 1, 'compute', 'interrupted', 1, 1)"
)
REVERSED = f"UPDATE events SET event_seq = -event_seq WHERE resource_id = {run_of('live')}"
STRAY = (
    "UPDATE effects SET source_resource_id = (SELECT resource_id FROM resources WHERE resource_type = 'effect')"
    " WHERE status = 'cancelled'"
)
FAULTS = [
    ("UPDATE blobs SET content = x'00', byte_length = 1 WHERE content = cast('{}' AS BLOB)", "bytes of its digest"),
    ("UPDATE blobs SET byte_length = byte_length + 1 WHERE content = cast('{}' AS BLOB)", "bytes of its digest"),
    ("UPDATE blobs SET media_type = 'image/png' WHERE content = cast('{}' AS BLOB)", "bytes of its digest"),
    ("DELETE FROM blobs WHERE content = cast('{}' AS BLOB)", "references lead somewhere"),
    ("DELETE FROM blobs WHERE instr(content, cast('\"mac\"' AS BLOB)) = 2", "source of a run is stored"),
    ("UPDATE resources SET aggregate_key = 'x' WHERE aggregate_key = 'done'", "id is that of its key"),
    ("UPDATE effects SET idempotency_key = 'other' WHERE status = 'cancelled'", "id is that of its key"),
    ("UPDATE resources SET revision = revision + 1 WHERE aggregate_key = 'live'", "number of events"),
    (f"DELETE FROM events WHERE resource_id = {run_of('live')} AND resource_revision = 1", "number of events"),
    (f"UPDATE events SET resource_revision = 7 WHERE resource_id = {run_of('done')}", "number of events"),
    (REVERSED, "order of their revisions"),
    (f"DELETE FROM leases WHERE resource_id = {run_of('ready')}", "has a lease"),
    (f"UPDATE leases SET generation = 0 WHERE resource_id = {run_of('live')}", "later claim than the lease"),
    ("DELETE FROM run_queue WHERE run_id = 'ready'", "has a queue row"),
    ("UPDATE run_queue SET status = 'starting' WHERE run_id = 'ready'", "claimed run is running"),
    ("UPDATE run_queue SET status = 'queued' WHERE run_id = 'parked'", "tell one story"),
    ("UPDATE run_queue SET status = 'failed' WHERE run_id = 'done'", "tell one story"),
    ("UPDATE run_queue SET status = 'done' WHERE run_id = 'failed'", "tell one story"),
    ("UPDATE run_queue SET status = 'cancelled' WHERE run_id = 'late'", "tell one story"),
    ("UPDATE run_queue SET finished_at = NULL WHERE run_id = 'done'", "tell one story"),
    ("UPDATE run_queue SET finished_at = 1 WHERE run_id = 'parked'", "tell one story"),
    ("UPDATE runs SET paused = 1 WHERE run_id = 'done'", "tell one story"),
    (f"UPDATE leases SET {FREE} WHERE resource_id = {run_of('live')}", "claimed while it executes"),
    (f"UPDATE leases SET {HELD} WHERE resource_id = {run_of('parked')}", "claimed while it executes"),
    (f"UPDATE leases SET {HELD} WHERE resource_id = {run_of('ready')}", "claimed while it executes"),
    (f"UPDATE leases SET {HELD} WHERE resource_id = {run_of('done')}", "nobody holds a run that is over"),
    (f"UPDATE leases SET {HELD} WHERE resource_id = {run_of('answered')}", "nobody holds a run that is over"),
    ("UPDATE run_workers SET status = 'running', finished_at = NULL WHERE run_id = 'done'", "has a run to execute"),
    ("UPDATE run_workers SET generation = 9 WHERE run_id = 'live'", "has a run to execute"),
    ("UPDATE run_workers SET finished_at = 1 WHERE run_id = 'live'", "has a run to execute"),
    ("UPDATE run_steps SET attempt_id = 'attempt-1' WHERE run_id = 'asks'", "something to wait for"),
    ("UPDATE effects SET status = 'rejected' WHERE status = 'ambiguous'", "something to wait for"),
    ("UPDATE node_attempts SET node_type = 'agent' WHERE run_id = 'awaits'", "something to wait for"),
    ("UPDATE run_queue SET status = 'queued' WHERE run_id = 'asleep'", "waits in a run that is parked"),
    ("UPDATE node_attempts SET deadline_at = NULL WHERE run_id = 'asleep'", "due when its sleep is over"),
    ("UPDATE node_attempts SET deadline_at = 1 WHERE run_id = 'awaits'", "due when its sleep is over"),
    ("UPDATE run_queue SET origin_session_id = 'x' WHERE run_id = 'busy'", "a line only behind it"),
    ("UPDATE runs SET status_detail = 'sessionBusy' WHERE run_id = 'ready'", "a line only behind it"),
    (RESTARTED.format(4, "late"), "at most three times"),
    (RESTARTED.format(1, "cancelled"), "at most three times"),
    ("UPDATE runs SET status = 'completed' WHERE run_id = 'answered'", "points both ways"),
    ("UPDATE runs SET root_run_id = 'done' WHERE run_id = 'next'", "points both ways"),
    ("UPDATE runs SET root_run_id = 'done' WHERE run_id = 'late'", "points both ways"),
    ("UPDATE run_queue SET status = 'done', finished_at = 1 WHERE run_id = 'asks'", "points both ways"),
    ("UPDATE node_attempts SET status = 'running' WHERE run_id = 'done' AND node_id = 'b'", "no open attempt"),
    (LATE, "no open attempt"),
    ("UPDATE node_attempts SET finished_at = NULL WHERE run_id = 'done'", "ended when it has an end"),
    ("UPDATE node_attempts SET finished_at = 1 WHERE status = 'running'", "ended when it has an end"),
    ("UPDATE node_attempts SET attempt_number = 3 WHERE status = 'running'", "numbered from 1"),
    ("DELETE FROM run_steps WHERE run_id = 'done' AND step_index = 1", "without a gap"),
    ("UPDATE run_steps SET step_index = step_index + 1 WHERE run_id = 'asks'", "without a gap"),
    ("UPDATE node_attempts SET status = 'running' WHERE run_id = 'done' AND node_id = 'b'", "attempt that ended"),
    ("UPDATE run_steps SET attempt_id = 'attempt-1' WHERE run_id = 'failed'", "attempt that ended"),
    ("DELETE FROM run_steps WHERE run_id = 'done' AND step_index = 2", "completed attempt is a step"),
    ("UPDATE effects SET settled_at = NULL WHERE status = 'applied'", "time of settling"),
    ("UPDATE effects SET settled_at = 1 WHERE status = 'applying'", "time of settling"),
    ("UPDATE effects SET attempt_count = 1 WHERE status = 'applied'", "try of a run's effect"),
    ("DELETE FROM effect_attempts WHERE attempt_number = 1 AND outcome = 'interrupted'", "try of a run's effect"),
    ("UPDATE effect_attempts SET outcome = 'applied', finished_at = 1 WHERE outcome IS NULL", "while one try is open"),
    ("UPDATE effects SET status = 'applying' WHERE status = 'applied'", "while one try is open"),
    ("UPDATE effect_attempts SET finished_at = NULL WHERE outcome = 'applied'", "while one try is open"),
    ("UPDATE effects SET result_hash = NULL WHERE status = 'applied'", "has a result"),
    ("UPDATE effects SET status = 'pending' WHERE status = 'cancelled'", "leaves no effect open"),
    (STRAY, "effect of a run has a run"),
    ("DELETE FROM viewer_runs WHERE run_id = 'ready'", "can be viewed"),
    ("UPDATE viewer_deltas SET presentation_revision = 9 WHERE run_id = 'done'", "in the kept window"),
    ("DELETE FROM viewer_deltas WHERE run_id = 'done'", "lacks its delta"),
]


@pytest.mark.parametrize(("statement", "rule"), FAULTS, ids=lambda value: value[:60])
def test_a_planted_fault_is_found(told, statement, rule):
    found = planted(told, statement)
    assert any(rule in finding.rule for finding in found), found
    assert all(finding.severity == "error" for finding in found)
    assert all(finding.what_is and finding.what_should_be and finding.table for finding in found)


def test_two_active_attempts_or_runners_are_found_even_where_the_index_was_lost(told):
    told.execute("DROP INDEX node_attempts_active_idx")
    told.execute("DROP INDEX run_workers_active_idx")
    told.execute("DROP INDEX workflow_turns_open_message_idx")
    story = Story(told)
    story.count = 100
    story.attempt("live", "b", "running")
    story.runner("live", "ready")
    assert {finding.rule for finding in verify(told)} == {"one active attempt a run", "one active runner a run"}


def ask(connection, kind="agent"):
    """A waiting run with a pending request, its sent message and an open turn."""
    story = Story(connection)
    story.count = 200
    story.run("talks", "waiting", "parked")
    attempt = story.attempt("talks", "a", "waiting", kind="agent")
    story.insert(
        "interactive_requests", request_id="q", run_id="talks", attempt_id=attempt, target_session_id="s", kind=kind,
        contract_hash=story.json({}), status="pending", created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    story.insert(
        "workflow_messages", workflow_message_id="m", run_id="talks", target_session_id="s", kind="step", source_id="q",
        content_hash=story.json({}), order_number=1, status="sent", pi_session_entry_id="e", created_at=NOW,
        updated_at=NOW,
    )  # fmt: skip
    story.insert(
        "workflow_turns", workflow_turn_id="t", workflow_message_id="m", run_id="talks", target_session_id="s",
        state="started", started_at=NOW,
    )  # fmt: skip
    for number in (1, 2):
        story.insert(
            "interactive_submissions", submission_id=f"x{number}", request_id="q", idempotency_key=f"k{number}",
            request_revision=1, payload_hash=story.json({}), outcome="rejected", submitted_at=NOW,
        )  # fmt: skip


SETTLE = "UPDATE interactive_requests SET status = 'settled', settled_at = 1, accepted_submission_id = "


@pytest.mark.parametrize(
    ("statements", "rule"),
    [
        ([SETTLE + "'x1'"], "has its accepted submission"),
        ([SETTLE + "'none'"], "has its accepted submission"),
        (["UPDATE interactive_submissions SET outcome = 'validating'"], "validated at a time"),
        (["UPDATE interactive_requests SET run_id = 'asks'"], "belongs to one run"),
        (["UPDATE workflow_turns SET target_session_id = 'other'"], "belongs to one run"),
        (["UPDATE workflow_messages SET status = 'pending', pi_session_entry_id = NULL"], "that was sent"),
        (["UPDATE interactive_requests SET status = 'cancelled'"], "something to wait for"),
        (
            [
                "UPDATE runs SET status = 'completed' WHERE run_id = 'talks'",
                "UPDATE run_queue SET status = 'done', finished_at = 1 WHERE run_id = 'talks'",
                "UPDATE node_attempts SET status = 'cancelled', finished_at = 1 WHERE run_id = 'talks'",
            ],
            "asks nothing more",
        ),
    ],
)
def test_faults_in_what_a_session_was_asked_are_found(told, statements, rule):
    ask(told)
    assert verify(told) == []
    found = planted(told, *statements)
    assert any(rule in finding.rule for finding in found), found


def decide(connection):
    """A decision that was answered, with its continuation."""
    story = Story(connection)
    story.count = 300
    story.run("decided", "waiting", "done")
    attempt = story.attempt("decided", "a", kind="agent")
    story.step("decided", 0, attempt)
    story.run("after", "queued", "queued", parent="decided")
    story.step("after", 0, attempt)
    resource_id = mutation.create_aggregate(connection, "decision", "d", NOW, revision=0)
    story.event(resource_id, "decision.requested")
    blob = story.json({})
    digest = bytes(32)
    story.insert(
        "human_decisions", decision_id="d", resource_id=resource_id, run_id="decided", attempt_id=attempt,
        audience="me", title="?", subject_hash=blob, presentation_hash=blob, choices_hash=blob, request_digest=digest,
        presentation_revision=1, request_hash=blob, created_at=NOW,
    )  # fmt: skip
    for name, outcome in (("s1", "won"), ("s2", "already_resolved")):
        story.insert(
            "human_decision_submissions", decision_id="d", attempt_id=name, source="human", candidate_hash=blob,
            outcome=outcome, submitted_at=NOW,
        )  # fmt: skip
    story.insert(
        "human_decision_resolutions", decision_id="d", outcome="accepted", provenance="human", response_hash=blob,
        request_digest=digest, resolved_at=NOW,
    )  # fmt: skip
    story.insert("continuations", decision_id="d", parent_run_id="decided", continuation_run_id="after", created_at=NOW)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE human_decision_resolutions SET request_digest = randomblob(32)", "one answer"),
        ("UPDATE human_decision_submissions SET outcome = 'won'", "one answer"),
        ("DELETE FROM human_decision_resolutions", "one answer"),
        ("UPDATE continuations SET continuation_run_id = 'ready'", "points both ways"),
        ("UPDATE continuations SET parent_run_id = 'ready'", "points both ways"),
        ("UPDATE runs SET parent_run_id = NULL, lineage_kind = NULL WHERE run_id = 'after'", "points both ways"),
    ],
)
def test_faults_in_decisions_are_found(told, statement, rule):
    decide(told)
    assert verify(told) == []
    found = planted(told, statement)
    assert any(rule in finding.rule for finding in found), found


def test_a_channel_may_be_one_revision_ahead_and_settings_begin_at_0(told):
    mutation.create_aggregate(told, "channel", "c", NOW, revision=1)
    mutation.create_aggregate(told, "settings", "s", NOW, revision=0)
    assert verify(told) == []
    mutation.create_aggregate(told, "settings", "t", NOW, revision=1)
    mutation.create_aggregate(told, "channel", "d", NOW, revision=2)
    assert [finding.rule for finding in verify(told)] == ["a revision is the number of events"] * 2


def test_a_live_server_may_still_be_ending_a_runner_of_a_run_that_is_over(told):
    told.execute(
        "UPDATE workflow_host_state SET epoch = 4, host_id = 'h', token_hash = randomblob(32), pid = 1,"
        " process_start_identity = 'p', started_at = 1, heartbeat_at = 1, expires_at = 1"
    )
    Story(told).runner("done", "running", server=4)
    assert verify(told) == []
    told.execute("UPDATE workflow_host_state SET epoch = 5")
    assert [finding.rule for finding in verify(told)] == ["a runner has a run to execute"]


def test_damaged_pages_are_findings_and_not_errors(told, state_file):
    told.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = told.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'run_steps'").fetchone()
    told.execute("PRAGMA journal_mode = DELETE")
    told.close()
    data = bytearray(state_file.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    state_file.write_bytes(data)
    with closing(open_read_only(state_file)) as reading:
        found = verify(reading)
    assert any(finding.table == "sqlite_schema" for finding in found)
    assert any(finding.table == "run_steps" and "unreadable" in finding.what_is for finding in found)


def test_it_reads_in_one_transaction_or_in_the_callers(told):
    told.execute("BEGIN IMMEDIATE")
    told.execute("DELETE FROM viewer_runs WHERE run_id = 'ready'")
    assert len(verify(told)) == 1
    assert told.in_transaction
    told.execute("ROLLBACK")
    changes = told.total_changes
    assert verify(told) == []
    assert told.total_changes == changes
    assert not told.in_transaction


def test_every_rule_has_a_name_of_its_own():
    rules = [*RULES, *run_invariants.RULES]
    assert len({rule.name for rule in rules}) == len(rules)


def test_the_file_of_another_implementation_has_warnings_alone(state_file):
    rebuild_original(state_file)
    with closing(open_read_only(state_file)) as reading:
        found = verify(reading)
    assert [finding for finding in found if finding.severity == "error"] == []
    assert {(finding.rule, finding.id) for finding in found} == {
        ("a claimed run is running", "run-queued"),
        ("a claimed run is running", "run-starting"),
        ("a claimed run is running", "run-running"),
        ("a claimed run is running", "run-to-delete"),
        ("a claimed run is running", "run-many-deltas"),
        ("run and queue tell one story", "run-done"),
        ("run and queue tell one story", "run-cont-parent"),
        ("run and queue tell one story", "exec-failed"),
        ("run and queue tell one story", "exec-shell-failed"),
        ("run and queue tell one story", "exec-timeout"),
        ("run and queue tell one story", "exec-loop"),
        ("a waiting run has something to wait for", "half-ambiguous"),
        ("a chain of runs points both ways", "run-continuation"),
    }


def test_a_fault_in_the_file_of_another_implementation_is_an_error(state_file):
    rebuild_original(state_file)
    with closing(sqlite3.connect(state_file, isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE event_seq = 2")
    with closing(open_read_only(state_file)) as reading:
        errors = [finding for finding in verify(reading) if finding.severity == "error"]
    assert [finding.rule for finding in errors] == ["a revision is the number of events"]
