"""What frames say about runs, continuations, effects, blobs and logs."""

from __future__ import annotations

import pandas as pd
import pytest

from pi_workflows_nb.notebook.open_state import open_state


@pytest.fixture
def state(filled):
    return open_state(filled)


def test_a_waiting_run_has_not_ended(state):
    run = state.runs().loc["run-asks"]
    assert run["status"] == "waiting"
    assert run["finished_at"] is pd.NaT
    assert run["waiting_since"] == pd.Timestamp("2026-01-01T00:00:12Z")
    assert run["continued_by"] == "run-goes-on"


def test_a_continuation_names_its_parent_and_carries_its_steps(state):
    run = state.runs().loc["run-goes-on"]
    assert (run["parent_run_id"], run["root_run_id"], run["lineage"]) == ("run-asks", "run-asks", "continuation")
    steps = state.steps(run="run-goes-on", payloads=True)
    assert list(steps["carried"]) == [True, True, False]
    assert list(steps["output"]) == [[2], {"answer": 42}, "fin"]
    assert list(steps.loc["run-goes-on"].index) == [0, 1, 2]


def test_headless_sessions_are_not_shown(state):
    assert state.runs()["session_id"].isna().all()
    assert state.run_queue()["session_id"].isna().all()


def test_payloads_are_decoded_and_null_differs_from_missing(state):
    runs = state.runs(payloads=True)
    assert runs.loc["run-done", "output"] == {"n": 1}
    assert runs.loc["run-queued", "output"] is pd.NA
    assert runs.loc["run-failed", "error"].endswith("ValueError: <b>no</b>")
    attempts = state.attempts(payloads=True)
    assert attempts.loc["run-done-fix-1", "output"] is None
    assert attempts.loc["run-done-judge-1", "output"] is pd.NA
    blobs = state.blobs(payloads=True)
    assert {"n": 1} in list(blobs["content"])
    assert "no" in list(blobs["content"])


def test_a_digest_leads_to_its_blob(state):
    digest = state.attempts().loc["run-done-read-1", "output_digest"]
    assert state.blobs(payloads=True).loc[digest, "content"] == [1]


def test_effects_name_their_run_and_request(state):
    effect = state.effects(payloads=True).set_index("idempotency_key").loc["one"]
    assert effect["run_id"] == "run-done"
    assert effect["request"]["recovery"] == "idempotent"
    assert effect["result"] == {"id": 7}
    assert list(state.effect_attempts()["outcome"]) == ["applied", "ambiguous"]


def test_tags_are_shown(state):
    assert state.runs().loc["run-done", "tags"] == "weekly, a, b"
    assert state.runs()["tags"].notna().sum() == 1


def test_projects_and_definitions_count_their_runs(state):
    assert dict(zip(state.projects()["path"], state.projects()["runs"], strict=True)) == {
        "/srv/alpha": 5,
        "/srv/beta": 1,
    }
    assert dict(zip(state.definitions()["workflow"], state.definitions()["runs"], strict=True)) == {
        "triage": 5,
        "other": 1,
    }


def test_logs_have_a_row_for_each_line(state):
    logs = state.logs()
    assert list(logs.columns) == ["run_id", "node_id", "attempt_id", "attempt_number", "line", "text"]
    assert list(logs[logs["node_id"] == "read"]["text"]) == ["hello", "world"]
    fix = logs[logs["node_id"] == "fix"]
    assert list(fix["line"]) == [1, 2, 3]
    assert fix["text"].iloc[0] == "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}"
    assert list(fix["text"])[1:] == ["", "last"]


def test_logs_of_an_unfinished_attempt_stand_under_its_runner(tmp_path):
    from tests.notebook.conftest import Rows, definition

    with_rows = Rows(tmp_path / "s.sqlite")
    with with_rows.database.transaction():
        with_rows.run(
            "r", snapshot=definition("w", {"a": "compute", "b": "compute"}), status="running", queue="running"
        )
        with_rows.attempt("r", "a", step=0, at=1_767_225_600_100)
        with_rows.attempt("r", "b", status="running", at=1_767_225_602_000, seconds=None)
        with_rows.runner("r", "epoch-9", status="running", finished=None)
    with_rows.log("epoch-9", b"half a line")
    with_rows.close()
    logs = open_state(tmp_path / "s.sqlite").logs()
    assert list(logs["attempt_id"]) == ["r-b-1"]
    assert list(logs["text"]) == ["half a line"]


def test_logs_can_be_cut_down(state):
    assert set(state.logs(run="run-done", node="fix")["node_id"]) == {"fix"}
    assert list(state.logs(limit=1)["text"]) == ["last"]
    assert len(state.logs(attempt="run-done-read-1")) == 2
    nothing = state.logs(run="run-queued")
    assert len(nothing) == 0
    assert (nothing.dtypes == state.logs().dtypes).all()


def test_one_call_is_one_snapshot(state, filled):
    from tests.notebook.conftest import Rows, definition

    with state._reader().snapshot() as connection:
        before = connection.execute("SELECT count(*) FROM runs").fetchone()
        rows = Rows(filled)
        with rows.database.transaction():
            rows.run("run-new", snapshot=definition("w", {"a": "compute"}), status="queued", queue="queued")
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == before
        rows.close()
    assert len(state.runs()) == before[0] + 1
