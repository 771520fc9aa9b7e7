"""Sleeping and waiting for events, in the engine: what is proposed, and what a direct run does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.workflows.local_store import LocalStore


class ParkingStore(LocalStore):
    """A store of a run that can leave its process."""

    parks = True


def napping(*given, **more):
    wf = pw.Workflow("naps", start_at="first")
    wf.compute(lambda ctx: 1, name="first")
    wf.sleep("nap", *given, **more)
    wf.compute(lambda ctx: dict(ctx.outputs), name="after")
    wf.edge("first", "nap")
    wf.edge("nap", "after")
    return wf


def waiting(**more):
    wf = pw.Workflow("waits", start_at="first")
    wf.compute(lambda ctx: 1, name="first")
    wf.wait_event("gate", **more)
    wf.compute(lambda ctx: ctx.outputs.get("gate"), name="after")
    wf.edge("first", "gate")
    wf.edge("gate", "after")
    return wf


SOON = datetime.now(UTC) + timedelta(hours=1)
NAPS = [
    ({"seconds": 60}, (None, 60_000)),
    ({"seconds": timedelta(seconds=60)}, (None, 60_000)),
    ({"seconds": lambda ctx: 59 + ctx.outputs["first"]}, (None, 60_000)),
    ({"until": SOON}, (round(SOON.timestamp() * 1000), None)),
    ({"until": lambda ctx: SOON}, (round(SOON.timestamp() * 1000), None)),
]


@pytest.mark.parametrize(("given", "over"), NAPS)
def test_a_sleep_ends_the_walk_with_its_attempt_open_and_a_moment_or_a_while(given, over):
    store = ParkingStore()
    result = pw.WorkflowEngine(store=store).run(napping(**given))
    last = store.transitions[-1]
    assert (result.status, last.end.status) == ("sleeping", "sleeping")
    assert (last.end.due_at, last.end.pause_ms) == over
    assert [step["nodeId"] for step in result.steps] == ["first"]
    assert store.transitions[-1].started is not None or any(map(callable, given.values()))


def test_a_constant_sleep_is_one_transition_with_the_end_before_it():
    store = ParkingStore()
    pw.WorkflowEngine(store=store).run(napping(60))
    last = store.transitions[-1]
    assert (last.finished.node_id, last.started.node_id, last.end.detail) == ("first", "nap", "nap")


@pytest.mark.parametrize("given", [{"until": datetime(2020, 1, 1, tzinfo=UTC)}, {"seconds": 0}])
def test_a_moment_that_has_passed_is_no_sleep(given):
    result = pw.WorkflowEngine(store=ParkingStore()).run(napping(**given))
    assert (result.status, result.output) == ("completed", {"first": 1, "nap": None})


def test_a_direct_run_sleeps_in_place():
    begun = time.monotonic()
    result = pw.WorkflowEngine().run(napping(0.2))
    assert (result.status, result.output) == ("completed", {"first": 1, "nap": None})
    assert time.monotonic() - begun >= 0.2


def test_a_function_that_says_no_time_fails_its_node():
    result = pw.WorkflowEngine().run(napping(lambda ctx: "soon"))
    assert result.status == "failed"
    assert "neither seconds" in result.error


def test_seconds_are_no_moment_and_a_moment_is_no_seconds():
    for given, words in (
        ({"seconds": lambda ctx: SOON}, "neither seconds"),
        ({"until": lambda ctx: 60}, "no datetime"),
    ):
        result = pw.WorkflowEngine().run(napping(**given))
        assert result.status == "failed"
        assert words.replace("no ", "not a ") in result.error


@pytest.mark.parametrize(("timeout", "due"), [(None, None), (60, 60_000), (lambda ctx: 60, 60_000)])
def test_a_wait_leaves_its_attempt_open_for_as_long_as_it_may_last(timeout, due):
    store = ParkingStore()
    result = pw.WorkflowEngine(store=store).run(waiting(timeout=timeout))
    last = store.transitions[-1]
    assert (result.status, result.detail, last.started.node_id) == ("waiting", "gate", "gate")
    assert (last.end.due_at, last.end.pause_ms) == (None, due)


def test_an_event_becomes_the_output_and_the_run_goes_on():
    store = LocalStore()
    engine = pw.WorkflowEngine(store=store)
    engine.run(waiting())
    store.answer({"ok": True})
    assert engine.run(waiting(), resume=True).output == {"ok": True}


def test_a_long_pause_before_another_try_holds_no_process():
    wf = pw.Workflow("tries", start_at="flaky")

    @wf.compute(retries=pw.retry(times=2, backoff=(60, 1, 60)))
    def flaky(ctx):
        raise ConnectionError("not yet")

    store = ParkingStore()
    result = pw.WorkflowEngine(store=store).run(wf)
    last = store.transitions[-1]
    assert (result.status, last.finished.step, last.started) == ("sleeping", False, None)
    assert last.end.due_at is None
    assert abs(last.end.pause_ms - 60_000) < 5000


@pytest.mark.parametrize(
    "make",
    [
        pw.sleep,
        lambda: pw.sleep(1, until=datetime.now(UTC)),
        lambda: pw.sleep(-1),
        lambda: pw.sleep(float("nan")),
        lambda: pw.sleep("a minute"),
        lambda: pw.sleep(until=datetime.now(UTC).replace(tzinfo=None)),
        lambda: pw.sleep(until=5),
        lambda: pw.wait_event(""),
        lambda: pw.wait_event("go", timeout=-1),
        lambda: pw.wait_event("go", validate=3),
    ],
)
def test_what_cannot_be_right_is_refused(make):
    with pytest.raises(pw.WorkflowDefinitionError):
        make()


def test_the_snapshot_tells_sleeps_and_events_apart():
    nodes = pw.Workflow(
        "w",
        start_at="a",
        nodes={
            "a": pw.sleep(60),
            "b": pw.sleep(until=datetime(2030, 1, 1, tzinfo=UTC)),
            "c": pw.wait_event("go", timeout=5, validate=int),
            "d": pw.sleep(lambda ctx: 1),
        },
    )
    from pi_workflows_nb.workflows.snapshot import definition_snapshot

    assert definition_snapshot(nodes)["nodes"] == {
        "a": {"nodeType": "compute", "sleep": {"seconds": 60}},
        "b": {"nodeType": "compute", "sleep": {"until": 1_893_456_000_000}},
        "c": {"nodeType": "checkpoint", "timeoutMs": 5000, "waitEvent": {"name": "go", "validated": True}},
        "d": {"nodeType": "compute", "sleep": {"seconds": None}},
    }
