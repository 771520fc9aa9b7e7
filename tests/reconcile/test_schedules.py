"""Runs at times: again and again or once, each moment one run, those that nobody served made up for by one."""

from __future__ import annotations

import datetime as dt
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.resource_managers import schedule
from pi_workflows_nb.wire.errors import ManagedResourceError, NotFoundError

SECOND = dt.timedelta(seconds=1)


def workflow(name="job"):
    wf = pw.Workflow(name, start_at="one")

    @wf.compute
    def one(ctx):
        return ctx.input

    return wf


def runs_of(server):
    frame = server.child_workflows()
    return list(frame[frame["status"] == "succeeded"]["run_id"])


@pytest.mark.parametrize(
    ("due", "every", "now", "expected"),
    [(10, 5, 10, 15), (10, 5, 12, 15), (10, 5, 14, 15), (10, 5, 15, 20), (10, 5, 100, 105), (10, 5, 3, 15)],
)
def test_the_next_moment_lies_on_the_grid_of_the_first(due, every, now, expected):
    assert schedule.following(due, every, now) == expected


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {"workflow": "w", "input": 1},
        {"workflow": "w", "everyMs": 5},
        {"workflow": 3, "input": None, "everyMs": 5},
        {"workflow": "w", "input": None, "everyMs": 5, "atMs": 5},
        {"workflow": "w", "input": None, "everyMs": 0},
        {"workflow": "w", "input": None, "everyMs": True},
        {"workflow": "w", "input": None, "everyMs": 1.5},
    ],
)
def test_what_is_no_schedule_is_refused_when_it_is_applied(server, spec):
    with pytest.raises(pw.PiWorkflowsError, match="a schedule"):
        server.resources.apply("schedule", "key", spec)
    assert server.resources().empty


def test_a_workflow_is_started_again_and_again(server, until):
    made = server.every(SECOND, workflow(), {"n": 1})
    assert server.every(SECOND, workflow(), {"n": 1}).uid == made.uid, "the same call adopts the same schedule"
    until(lambda: len(runs_of(server)) >= 2)
    assert server.get_run(runs_of(server)[0]).output == {"n": 1}
    moments = [int(key.partition(":")[2]) for key in server.child_workflows()["request_key"]]
    assert {(later - moments[0]) % 1000 for later in moments} == {0}, "on the grid of the first moment"
    made.delete().wait_deleted(30)
    count = len(server.runs())
    time.sleep(1.2)
    assert len(server.runs()) == count


def test_a_workflow_is_started_once(server, until):
    made = server.once(dt.datetime.now(dt.UTC) + SECOND / 4, workflow(), "in")
    until(lambda: len(runs_of(server)) == 1)
    made.wait_settled(30)
    assert made.status.resource_manager_status["count"] == 1
    assert made.conditions["Ready"].reason == "Fired"
    made.reconcile()
    made.wait_settled(30)
    assert len(server.runs()) == 1


def test_another_interval_under_the_same_key_counts_from_now(server, until):
    made = server.every(dt.timedelta(days=1), workflow(), key="mine")
    until(lambda: "Ready" in made.conditions)
    assert server.runs().empty
    assert server.every(SECOND, workflow(), key="mine").uid == made.uid
    until(lambda: len(runs_of(server)) >= 1)


def test_moments_that_nobody_served_are_made_up_for_by_one_run_at_once(server, again, until):
    once = server.once(SECOND, workflow("late"), key="once")
    often = server.every(SECOND * 2, workflow("often"), key="often")
    until(lambda: "Ready" in once.conditions and "Ready" in often.conditions)
    server.stop()
    time.sleep(5.5)
    back = time.time() * 1000
    served = again()
    until(lambda: len(runs_of(served)) >= 2)
    children = served.child_workflows()
    assert list(children["workflow"]).count("late") == 1
    moments = [int(key.partition(":")[2]) for key in children[children["workflow"] == "often"]["request_key"]]
    assert sum(moment < back for moment in moments) == 1, "at least two had passed"
    assert served.verify().empty


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.every(1, workflow()), ManagedResourceError),
        (lambda s: s.every(dt.timedelta(0), workflow()), ManagedResourceError),
        (lambda s: s.once("soon", workflow()), ManagedResourceError),
        (lambda s: s.once(dt.datetime(1960, 1, 1), workflow()), ManagedResourceError),  # noqa: DTZ001
        (lambda s: s.every(SECOND, "nothing-of-that-name"), NotFoundError),
        (lambda s: s.every(SECOND, print), ManagedResourceError),
        (lambda s: s.every(SECOND, workflow(), {1, 2}), pw.NotJsonError),
    ],
)
def test_mistakes_are_told_at_once(server, call, error):
    with pytest.raises(error):
        call(server)
    assert server.resources().empty
