"""What a resource manager may be made of, and what a pass may end with."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.resource_managers import definition
from pi_workflows_nb.wire.errors import ManagedResourceError, ResourceManagerDefinitionError


@pytest.mark.parametrize("name", ["a", "pull-request", "a1-2", "x" * 512])
def test_names(name):
    assert pw.ResourceManager(name).name == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a_b", "a b", "é", "a\n", "x" * 513, None, 3])
def test_names_that_cannot_be(name):
    with pytest.raises(ResourceManagerDefinitionError, match="resource manager"):
        pw.ResourceManager(name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"timeout": "60"},
        {"timeout": True},
        {"timeout": 24 * 3600 + 1},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
    ],
)
def test_limits_that_cannot_be(arguments):
    with pytest.raises(ResourceManagerDefinitionError):
        pw.ResourceManager("a", **arguments)


def test_a_pass_has_a_minute_unless_told_otherwise():
    assert pw.ResourceManager("a").timeout == 60
    assert pw.ResourceManager("a", timeout=timedelta(minutes=2)).timeout == 120


def test_a_manager_without_a_function_says_so():
    manager = pw.ResourceManager("a")
    with pytest.raises(ResourceManagerDefinitionError, match="reconcile"):
        manager.function  # noqa: B018
    with pytest.raises(ResourceManagerDefinitionError):
        manager.reconcile(3)


def test_conditions_are_true_false_or_unknown():
    assert pw.condition_true("Ready", "Yes", "all there").status is True
    assert pw.condition_false("Ready", "No").status is False
    assert pw.condition_unknown("Ready", "Lost").status == "unknown"


@pytest.mark.parametrize("arguments", [("", "R"), ("T", ""), (None, "R"), ("T", 3), ("T", "R", 3)])
def test_conditions_that_cannot_be(arguments):
    with pytest.raises(ManagedResourceError, match="condition"):
        pw.condition_true(*arguments)


def test_how_a_pass_ends():
    assert definition.settled().after is None
    assert definition.requeue_after(2.5).after == 2.5
    assert definition.requeue_after(timedelta(minutes=1)).after == 60
    assert definition.settled(finalizers=["a", "b"]).finalizers == ("a", "b")
    assert definition.settled(conditions=pw.condition_true("Ready", "Yes")).conditions[0].type == "Ready"
    assert definition.settled(status=None).status is None, "None is a status of its own"


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, "soon", None, True])
def test_times_that_cannot_be(seconds):
    with pytest.raises(ManagedResourceError, match="seconds"):
        definition.requeue_after(seconds)


def test_lists_that_are_none():
    with pytest.raises(ManagedResourceError, match="finalizers"):
        definition.settled(finalizers="one")
    with pytest.raises(ManagedResourceError, match="conditions"):
        definition.settled(conditions=["Ready"])


def test_what_an_observation_says():
    assert pw.applied("ref").external_ref == "ref"
    assert pw.not_applied().state == "not_applied"
    assert pw.cannot_tell("why").reason == "why"
    with pytest.raises(ManagedResourceError, match="external_ref"):
        pw.applied(3)
