"""Filters cut a frame down in SQL, and a filter that cannot be says what it could be."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest

from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import QueryError

START = pd.Timestamp("2026-01-01T00:00:00Z")


@pytest.fixture
def state(filled):
    return open_state(filled)


def test_runs_come_newest_first(state):
    assert list(state.runs().index) == ["run-waits", "run-queued", "run-failed", "run-goes-on", "run-asks", "run-done"]


def test_by_status(state):
    assert list(state.runs(status="failed").index) == ["run-failed"]
    assert set(state.runs(status=["queued", "waiting"]).index) == {"run-queued", "run-asks", "run-waits"}
    assert list(state.effects(status="ambiguous")["run_id"]) == ["run-failed"]
    assert set(state.steps(status="failed")["node_id"]) == {"only"}
    assert len(state.attempts(status="failed", workflow="triage")) == 1


def test_by_workflow_everywhere(state):
    assert list(state.runs(workflow="other").index) == ["run-failed"]
    assert set(state.attempts(workflow="other")["run_id"]) == {"run-failed"}
    assert set(state.effects(workflow=["other"])["run_id"]) == {"run-failed"}
    assert set(state.definitions(workflow="other")["workflow"]) == {"other"}


def test_by_run_and_node(state):
    assert list(state.steps(run="run-done")["node_id"]) == ["read", "judge", "fix"]
    assert list(state.attempts(run=["run-done", "run-failed"], node="judge")["attempt_number"]) == [1, 2]
    aggregate = identities.aggregate_id("run", "run-done")
    assert list(state.events(run="run-done")["aggregate_id"]) == [aggregate]
    assert list(state.leases(aggregate=aggregate).index) == [aggregate]
    assert list(state.commands(run="run-done").index) == ["request-1"]


def test_by_tag_and_text(state):
    assert list(state.runs(tag="weekly").index) == ["run-done"]
    assert list(state.runs(tag="a, b").index) == ["run-done"]
    assert len(state.runs(tag="week")) == 0
    assert list(state.steps(tag="weekly")["node_id"]) == ["read", "judge", "fix"]
    assert list(state.runs(text="FIRST").index) == ["run-done"]
    assert list(state.runs(text="goes").index) == ["run-goes-on"]
    assert len(state.runs(text="%")) == 0


@pytest.mark.parametrize(
    "moment",
    [
        START + pd.Timedelta("30s"),
        dt.datetime(2026, 1, 1, 0, 0, 30, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 0, 0, 30),  # noqa: DTZ001 - without a zone it is UTC
        "2026-01-01T00:00:30",
        "2026-01-01T01:00:30+01:00",
        1_767_225_630_000,
    ],
)
def test_since_and_until_take_moments_in_any_form(state, moment):
    assert set(state.runs(since=moment).index) == {"run-failed", "run-queued", "run-waits"}
    assert set(state.runs(until=moment).index) == {"run-failed", "run-goes-on", "run-asks", "run-done"}


def test_since_takes_a_length_of_time_back_from_now(state):
    assert len(state.runs(since=dt.timedelta(days=36_500))) == 6
    assert len(state.runs(until=dt.timedelta(days=36_500))) == 0


def test_by_project(state):
    assert list(state.runs(project="/srv/beta").index) == ["run-queued"]
    assert len(state.runs(project="*")) == 6
    beta = identities.project_id("/srv/beta")
    assert list(state.runs(project=beta).index) == ["run-queued"]
    assert len(state.events(project=beta)) == 1
    assert len(state.effects(project="/srv/alpha")) == 2
    assert len(state.effects(project=beta)) == 0
    assert len(state.leases(project="/srv/alpha")) == 7
    assert set(state.definitions(project=beta)["workflow"]) == {"triage"}


def test_order_and_limit(state):
    assert list(state.runs(order="created_at", limit=2).index) == ["run-done", "run-asks"]
    assert list(state.runs(order=["-status", "created_at"], limit=1)["status"]) == ["failed"]
    assert len(state.events(limit=0)) == 0
    assert len(state.events(limit=3)) == 3


def test_states_are_ordered_as_they_follow_each_other(state):
    statuses = list(state.runs(order="status")["status"].cat.codes)
    assert statuses == sorted(statuses)


@pytest.mark.parametrize(
    ("name", "filters", "said"),
    [
        ("runs", {"status": "runing"}, "'running'"),
        ("runs", {"order": "nothing"}, "created_at"),
        ("runs", {"limit": -1}, "0 or more"),
        ("runs", {"limit": "ten"}, "0 or more"),
        ("runs", {"since": "yesterdayish"}, "not a moment"),
        ("runs", {"until": True}, "not a moment"),
        ("effects", {"status": ["applied", "maybe"]}, "'ambiguous'"),
    ],
)
def test_a_filter_that_cannot_be_says_what_could(state, name, filters, said):
    with pytest.raises(QueryError, match=said):
        getattr(state, name)(**filters)


def test_quotes_in_filters_are_data(state):
    assert len(state.runs(workflow="x' OR '1'='1")) == 0
    assert len(state.runs(tag='"; DROP TABLE runs; --')) == 0
    assert len(state.runs()) == 6
