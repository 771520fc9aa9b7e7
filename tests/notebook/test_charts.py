"""Charts of frames: what they draw, and what they refuse."""

from __future__ import annotations

import pytest

from pi_workflows_nb.notebook import charts
from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.wire.errors import QueryError


@pytest.fixture
def state(everything):
    return open_state(everything)


def rows(chart):
    (data,) = chart.to_dict()["datasets"].values()
    return data


def test_steps_become_bars_by_node_in_the_colours_of_their_outcomes(state):
    chart = state.steps(run="run-done").pw.gantt().to_dict()
    assert chart["mark"]["type"] == "bar"
    assert (chart["encoding"]["x"]["field"], chart["encoding"]["x2"]["field"]) == ("started_at", "finished_at")
    assert [row["node_id"] for row in rows(state.steps(run="run-done").pw.gantt())] == ["read", "judge", "fix"]
    failed = state.attempts(run="run-failed").pw.gantt().to_dict()["encoding"]["color"]["scale"]
    assert failed == {"domain": ["failed"], "range": ["#c62828"]}


def test_what_goes_on_lasts_until_now(state):
    waiting = state.decisions()[["title", "created_at", "resolved_at", "status"]]
    ends = {row["status"]: row["resolved_at"] for row in rows(waiting.pw.gantt())}
    assert ends["open"] > ends["accepted"]


def test_events_become_marks_in_time(state):
    chart = state.events().pw.timeline()
    assert chart.to_dict()["encoding"]["x"]["field"] == "recorded_at"
    assert len(rows(chart)) == len(state.events())


def test_durations_are_seconds(state):
    drawn = rows(state.attempts(run="run-done").pw.durations())
    assert {row["node_id"]: row["seconds"] for row in drawn}["fix"] == 0.25


def test_every_frame_with_times_can_be_drawn_and_others_say_why_not(state):
    assert state.runs().pw.timeline().to_dict()
    assert state.runners().pw.gantt().to_dict()
    with pytest.raises(QueryError, match="no column duration"):
        state.events().pw.durations()
    with pytest.raises(QueryError, match="no times to draw"):
        state.projects()[["path"]].pw.timeline()


def test_an_empty_frame_is_an_empty_chart(empty):
    assert open_state(empty).steps().pw.gantt().to_dict()


def test_charts_hold_no_more_rows_than_they_can_bear(state, monkeypatch):
    monkeypatch.setattr(charts, "MAX_ROWS", 3)
    assert len(rows(state.events().pw.timeline())) == 3
