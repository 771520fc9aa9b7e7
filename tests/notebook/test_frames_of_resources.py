"""What frames say about managed resources, their conditions, their queue and their child workflows."""

from __future__ import annotations

import pandas as pd
import pytest

from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.wire.errors import QueryError
from tests.notebook.conftest import SECOND, T0

AT = pd.Timestamp(T0, unit="ms", tz="UTC")


@pytest.fixture
def state(everything):
    return open_state(everything)


def test_a_resource_is_settled_queued_or_worked_on(state):
    frame = state.resources().set_index("key")
    assert frame["state"].to_dict() == {
        "failed": "queued",
        "new": "queued",
        "settled": "settled",
        "worked on": "reconciling",
    }
    assert frame["ready"].dropna().to_dict() == {"settled": "true", "worked on": "false"}
    assert frame["observed_generation"].to_dict() == {"failed": 0, "new": 0, "settled": 1, "worked on": 1}
    assert frame.loc["failed", "available_at"] == AT + pd.Timedelta(SECOND, "ms")


def test_specs_statuses_and_errors_come_on_request(state):
    frame = state.resources(payloads=True).set_index("key")
    assert frame.loc["settled", "spec"] == {"path": "settled"}
    assert frame.loc["new", "spec"] is None
    assert frame.loc["settled", "status"]["resourceManagerStatus"] == {"phase": "seen"}
    assert frame.loc["failed", "error"] == "ValueError: <b>no</b>"
    assert frame.loc["settled", "error"] is pd.NA


def test_each_condition_is_a_row_with_the_time_of_its_change(state):
    frame = state.conditions().reset_index().set_index("key")
    assert frame["status"].to_dict() == {"settled": "true", "worked on": "false"}
    assert set(frame["type"]) == {"Ready"}
    assert set(frame["last_transition_time"]) == {AT}
    assert set(frame["message"]) == {"<b>at</b>"}
    assert len(state.conditions(status="false")) == 1


def test_the_queue_tells_who_works_on_what(state):
    frame = state.resource_queue(payloads=True).set_index("key")
    assert frame["held"].to_dict() == {"failed": False, "new": False, "worked on": True}
    assert frame.loc["worked on", "owner_id"] == "owner"
    assert frame["consecutive_errors"].to_dict() == {"failed": 1, "new": 0, "worked on": 0}
    assert frame.loc["failed", "error"] == "ValueError: <b>no</b>"


def test_children_name_their_parent_and_workflow(state):
    frame = state.child_workflows()
    assert list(frame["key"]) == ["settled", "worked on"]
    assert set(frame["status"]) == {"pending"}
    assert len(state.child_workflows(workflow="triage")) == 2
    assert state.child_workflows(workflow="other").empty


def test_frames_of_resources_are_cut_down_by_manager_project_and_state(state):
    assert len(state.resources(resource_manager="folder")) == 3
    assert len(state.resources(resource_manager=["folder", "ticket"], status=["settled", "queued"])) == 3
    assert state.resources(project="/srv/beta").empty
    assert len(state.conditions(project="/srv/alpha")) == 2
    assert list(state.resources(text="WORK")["key"]) == ["worked on"]
    assert len(state.resource_queue(resource_manager="ticket")) == 1
    with pytest.raises(QueryError, match="no such state"):
        state.resources(status="ready")
    with pytest.raises(QueryError, match="no filter resource_manager"):
        state._frame("runs", resource_manager="folder")
