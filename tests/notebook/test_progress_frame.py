"""The frame of progress: its columns and dtypes, what counts, and what it says where there is no estimate."""

from __future__ import annotations

from contextlib import closing

import pandas as pd

from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.workflows.progress import PROGRESS
from tests.notebook.conftest import SECOND, T0, Rows, definition


def time(milliseconds):
    return pd.Timestamp(milliseconds, unit="ms", tz="UTC")


def test_an_empty_frame_has_the_same_columns_and_dtypes(everything, empty):
    full, nothing = open_state(everything).progress(), open_state(empty).progress()
    assert len(full) == 1
    assert len(nothing) == 0
    assert (full.dtypes == nothing.dtypes).all()
    assert list(full.index.names) == list(nothing.index.names) == ["run_id", "type", "key"]
    assert isinstance(full["eta"].dtype, pd.DatetimeTZDtype)
    assert full["completed"].dtype == "Float64"
    assert "workflow_updates" in full.attrs["source"]


def test_a_track_of_a_node_that_has_ended_has_no_estimate(everything):
    row = open_state(everything).progress().loc[("run-done", "progress", "files")]
    assert (row["node_id"], row["status"], row["completed"], row["total"], row["unit"]) == (
        "read", "running", 4, 10, "files",
    )  # fmt: skip
    assert row["rate"] == 20
    assert pd.isna(row["eta"])
    assert row["eta_unavailable"] == "its node has ended"


def test_a_running_node_has_estimates_of_its_own_and_of_its_source(filled):
    with closing(Rows(filled)) as rows, rows.database.transaction():
        rows.run("run-on", snapshot=definition("copy", {"copy": "action"}), status="running", queue="running")
        attempt = rows.attempt("run-on", "copy", status="running", kind="action", seconds=None)

        def say(key, number, at, **said):
            rows.update(attempt, "progress", key, {"schema": PROGRESS, **said}, number=number, at=at)

        for number in range(6):
            told = {"status": "running", "completed": 10 * number, "total": 100, "unit": "rows"}
            say("rows", 10 + number, T0 + number * SECOND, **told)
        say("there", 20, T0 + 5 * SECOND, status="running", sourceEstimatedFinishAt="2026-01-01T00:01:00Z")
        rows.update(attempt, "progress", "others", {"schema": PROGRESS, "status": "?"}, number=21, at=T0)
        rows.update(attempt, "progress", "plain", {"percent": 5}, number=22, at=T0)
    frame = open_state(filled).progress(run="run-on", now=T0 + 6 * SECOND).droplevel([0, 1])
    assert list(frame.index) == ["rows", "there"]
    assert frame["eta"].tolist() == [time(T0 + 10 * SECOND), time(T0 + 60 * SECOND)]
    assert frame["eta_confidence"].dropna().tolist() == ["high"]
    assert frame["eta_source"].tolist() == ["measured", "source"]
    assert frame["eta_unavailable"].isna().all()
    before = open_state(filled).progress(run="run-on", now=T0 + 2 * SECOND)
    assert before["completed"].tolist() == [20]
    assert open_state(filled).progress(run="run-on", until=T0, now=T0 + SECOND)["eta_unavailable"].tolist() == [
        "no interval has been measured yet"
    ]
