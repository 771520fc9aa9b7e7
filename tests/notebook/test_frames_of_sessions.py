"""What frames say about sessions, decisions, settings, follow-ups and sources."""

from __future__ import annotations

import pandas as pd
import pytest

from pi_workflows_nb.notebook.open_state import open_state


@pytest.fixture
def state(everything):
    return open_state(everything)


def test_a_decision_is_open_until_it_is_resolved(state):
    decisions = state.decisions(payloads=True)
    assert dict(zip(decisions.index, decisions["status"], strict=True)) == {
        "decision-1": "accepted",
        "decision-2": "open",
    }
    taken = decisions.loc["decision-1"]
    assert (taken["continuation_run_id"], taken["response"]) == ("run-goes-on", {"choice": "yes"})
    assert decisions.loc["decision-2", "response"] is pd.NA
    assert list(state.decisions(status="open")["run_id"]) == ["run-waits"]
    assert list(state.get_run("run-waits").decisions().index) == ["decision-2"]


def test_requests_lead_to_their_answers(state):
    asked = state.requests(payloads=True).loc["ask-1"]
    assert (asked["node_id"], asked["kind"], asked["contract"]) == ("judge", "agent", {"prompt": "judge"})
    answers = state.submissions(run="run-done", payloads=True)
    assert list(answers["outcome"]) == ["rejected", "accepted"]
    assert asked["accepted_submission_id"] in answers.index
    assert list(state.submissions(status="rejected").index) == ["answer-1"]


def test_messages_hold_json_or_text(state):
    messages = state.messages(payloads=True)
    assert list(messages["kind"]) == ["step", "follow_up"]
    assert list(messages["content"]) == [{"text": "judge"}, "and then?"]
    assert state.turns().loc["turn-1", "duration"] == pd.Timedelta("250ms")


def test_settings_and_their_changes(state):
    scope = state.settings(payloads=True).loc["scope-1"]
    assert (scope["run_id"], scope["initial"], scope["current"]) == ("run-done", {"depth": 1}, {"depth": 2})
    change = state.setting_changes(run="run-done", payloads=True).iloc[0]
    assert (change["actor_type"], change["after"]) == ("server", {"depth": 2})
    assert change["after_digest"] == scope["current_digest"]


def test_follow_ups_come_in_their_order(state):
    queued = state.follow_ups(payloads=True)
    assert list(queued["status"]) == ["queued", "removed"]
    assert queued["prompt"].iloc[0] == "and then?"
    assert queued["reason"].iloc[0] is pd.NA
    assert queued["reason"].iloc[1] == "done already"


def test_what_was_recorded_is_found_by_run(state):
    run = state.get_run("run-done")
    assert list(run.session_segments(payloads=True)["failure"]) == ["the recording broke off"]
    assert list(run.session_entries(payloads=True)["entry"]) == [{"role": "assistant"}]
    assert list(run.session_events(node="judge", payloads=True)["payload"]) == [{"tokens": 3}]
    assert len(state.get_run("run-failed").session_entries()) == 0


def test_channels_count_what_is_not_settled(state):
    channel = state.channels().loc["channel-1"]
    assert (channel["messages"], channel["unsettled_messages"]) == (1, 1)


def test_sources_name_what_a_run_executes(state):
    assert state.sources(run="run-done").loc[("run-done", ""), "source_ref"] == "triage.workflow.py"


def test_frames_keep_to_their_project(state):
    for name in ("requests", "submissions", "messages", "turns", "settings", "setting_changes", "follow_ups"):
        assert len(getattr(state, name)(project="/srv/alpha")) > 0, name
        assert len(getattr(state, name)(project="/srv/beta")) == 0, name


def test_what_a_runner_left_is_text(everything):
    from contextlib import closing

    from tests.notebook.conftest import Rows

    with closing(Rows(everything)) as rows, rows.database.transaction():
        rows.connection.execute("UPDATE run_workers SET diagnostic_hash = ?", (rows.text("it {broke"),))
        rows.connection.execute("UPDATE node_attempts SET prompt_hash = ?", (rows.text("Judge it"),))
    state = open_state(everything)
    assert list(state.runners(payloads=True)["diagnostic"]) == ["it {broke"]
    assert set(state.attempts(payloads=True)["prompt"]) == {"Judge it"}
