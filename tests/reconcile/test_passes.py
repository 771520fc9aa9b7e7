"""A pass over a managed resource: what it sees, what it may say, what stands in the file of it, and when it is made."""

from __future__ import annotations

import threading
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import ManagedResourceError, WaitTimeout


def manager_of(function, **arguments):
    manager = pw.ResourceManager("box", **arguments)
    manager.reconcile(function)
    return manager


def test_the_rows_and_events_of_a_pass(server, types, payloads):
    async def reconcile(ctx, resource):
        return ctx.settled(
            status={"phase": "seen"}, conditions=[pw.condition_true("Ready", "Looked", "at it")], finalizers=["clean"]
        )

    resource = server.apply(manager_of(reconcile, initial_status={"phase": "new", "kept": 1}), "one", {"size": 3})
    resource.wait_for("Ready", timeout=60).wait_settled(60)
    assert resource.spec == {"size": 3}
    assert resource.generation == resource.status.observed_generation == 1
    assert resource.status.resource_manager_status == {"phase": "seen", "kept": 1}, "a status is a patch"
    assert resource.finalizers == ("clean",)
    ready = resource.conditions["Ready"]
    assert (ready.status, ready.reason, ready.message, ready.observed_generation) == (True, "Looked", "at it", 1)
    assert types(resource) == [
        "resource.created",
        "resource_applied",
        "reconcile_started",
        "resource.status_updated",
        "reconcile_finished",
    ]
    (started,), (finished,) = payloads(resource, "reconcile_started"), payloads(resource, "reconcile_finished")
    assert set(started) == {"generation", "reconcileId"}
    assert set(finished) == {"durationMs", "generation", "reconcileId", "result"}
    assert (finished["result"], finished["reconcileId"]) == ("settled", started["reconcileId"])
    assert payloads(resource, "resource_applied") == [{"generation": 1}]
    assert list(resource.events()["event_type"])[2] == "lease.claimed"
    assert list(resource.events()["event_type"])[-1] == "lease.released"
    owner = resource.events()["actor_id"].dropna().iloc[0]
    assert owner.startswith("resource-manager-runtime-")


def test_a_function_may_be_sync_and_sees_the_resource_as_it_was(server):
    def reconcile(ctx, resource):
        seen = [resource.key, resource.resource_manager, resource.generation, resource.spec]
        return ctx.settled(status={"seen": seen}, conditions=[pw.condition_true("Ready", "Yes")])

    resource = server.apply(manager_of(reconcile), "o\nn\u00e9 \U0001f600'\"", [1, None])
    status = resource.wait_for("Ready", timeout=60).status.resource_manager_status
    assert status == {"seen": ["o\nn\u00e9 \U0001f600'\"", "box", 1, [1, None]]}


def test_an_equal_spec_changes_nothing_and_another_one_wakes(server, types):
    def reconcile(ctx, resource):
        return ctx.settled(status={"spec": resource.spec}, conditions=[pw.condition_true("Ready", "Yes")])

    manager = manager_of(reconcile)
    resource = server.apply(manager, "one", {"a": 1, "b": 2}).wait_for("Ready", timeout=60).wait_settled(60)
    version = resource.resource_version
    assert server.apply(manager, "one", {"b": 2, "a": 1}).uid == resource.uid
    time.sleep(0.3)
    assert resource.resource_version == version
    server.apply(manager, "one", {"a": 2}).wait_for("Ready", timeout=60)
    assert resource.generation == 2
    assert resource.status.resource_manager_status == {"spec": {"a": 2}}
    assert types(resource).count("resource_updated") == 1


def test_a_requeued_resource_is_looked_at_again_at_once_or_after_a_while(server, payloads):
    def reconcile(ctx, resource):
        count = resource.status.resource_manager_status["count"] + 1
        done = pw.condition_true("Ready", "Yes") if count == 3 else pw.condition_false("Ready", "No")
        end = [ctx.requeue, lambda **more: ctx.requeue_after(0.4, **more), ctx.settled][count - 1]
        return end(status={"count": count}, conditions=[done])

    resource = server.apply(manager_of(reconcile, initial_status={"count": 0}), "one").wait_for("Ready", timeout=60)
    finished = payloads(resource.wait_settled(60), "reconcile_finished")
    assert [one["result"] for one in finished] == ["requeue", "requeue", "settled"]
    assert [one.get("requeueAfterMs") for one in finished] == [0, 400, None]
    starts = resource.events().query("event_type == 'reconcile_started'")["recorded_at"]
    assert (starts.iloc[2] - starts.iloc[1]).total_seconds() >= 0.4


def test_the_time_of_a_condition_moves_with_its_status_only(server, until):
    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", resource.spec)])

    manager = manager_of(reconcile)
    resource = server.apply(manager, "one", "First").wait_for("Ready", timeout=60)
    first = resource.conditions["Ready"]
    server.apply(manager, "one", "Second")
    until(lambda: resource.conditions["Ready"].reason == "Second")
    second = resource.conditions["Ready"]
    assert second.last_transition_time == first.last_transition_time
    assert (first.observed_generation, second.observed_generation) == (1, 2)


def test_a_wake_up_during_a_pass_leads_to_another(server, write, until):
    write(
        "box",
        """
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            (here / "begun").touch()
            while not (here / "gate").exists():
                time.sleep(0.01)
            return ctx.settled()
        """,
    )
    resource = server.resources.apply("box", "one")
    until((server.project / "begun").exists)
    resource.reconcile()
    (server.project / "gate").touch()
    until(lambda: list(resource.events()["event_type"]).count("reconcile_finished") == 2)
    resource.wait_settled(60)


def test_a_change_during_a_pass_is_a_conflict_and_the_next_pass_sees_it(server, write, until, types, payloads):
    write(
        "box",
        """
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            (here / "begun").touch()
            while not (here / "gate").exists():
                time.sleep(0.01)
            return ctx.settled(status={"saw": resource.spec}, conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    resource = server.resources.apply("box", "one", "old")
    until((server.project / "begun").exists)
    server.resources.apply("box", "one", "new")
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60).wait_settled(60)
    assert resource.status.resource_manager_status == {"saw": "new"}
    assert types(resource).count("reconcile_conflict") == 1
    assert set(payloads(resource, "reconcile_conflict")[0]) == {"reconcileId"}
    assert types(resource).count("resource.status_updated") == 1, "the pass that saw the old spec left no status"
    assert server.resource_queue().empty


def test_what_a_pass_notes_stands_in_the_history(server, payloads):
    def reconcile(ctx, resource):
        ctx.record_event("looked", {"at": "it"})
        ctx.record_event("bare")
        refused = []
        for event in ("reconcile_done", "lease.stolen", "resource_deleted", "effect_applied", "big", ""):
            try:
                ctx.record_event(event, {"x": "y" * (64 << 10)} if event == "big" else {})
            except pw.PiWorkflowsError:
                refused.append(event)
        return ctx.settled(status={"refused": refused}, conditions=[pw.condition_true("Ready", "Yes")])

    resource = server.apply(manager_of(reconcile), "one").wait_for("Ready", timeout=60)
    assert payloads(resource, "looked") == [{"at": "it"}]
    assert payloads(resource, "bare") == [{}]
    refused = ["reconcile_done", "lease.stolen", "resource_deleted", "effect_applied", "big", ""]
    assert resource.status.resource_manager_status == {"refused": refused}


def test_what_a_pass_prints_is_kept_and_shown(server, until):
    def reconcile(ctx, resource):
        print("looking at", resource.key)
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])

    resource = server.apply(manager_of(reconcile), "one").wait_for("Ready", timeout=60)
    until(lambda: "looking at one" in resource.logs())


def test_passes_see_the_variables_of_who_applied(server, monkeypatch):
    import os

    def reconcile(ctx, resource):
        return ctx.settled(status={"seen": os.environ.get("MINE")}, conditions=[pw.condition_true("Ready", "Yes")])

    monkeypatch.setenv("MINE", "here")
    resource = server.apply(manager_of(reconcile), "one").wait_for("Ready", timeout=60)
    assert resource.status.resource_manager_status == {"seen": "here"}


@pytest.mark.parametrize(
    ("key", "spec", "error"),
    [
        ("", None, ManagedResourceError),
        ("x" * 513, None, ManagedResourceError),
        (3, None, ManagedResourceError),
        ("one", "x" * (1 << 20), ManagedResourceError),
        ("one", {1, 2}, pw.NotJsonError),
    ],
)
def test_specs_and_keys_that_cannot_be(server, key, spec, error):
    with pytest.raises(error):
        server.apply(manager_of(lambda ctx, resource: ctx.settled()), key, spec)
    assert server.resources().empty


def test_a_spec_of_a_mebibyte_passes_and_comes_back_in_parts(server):
    def reconcile(ctx, resource):
        return ctx.settled(status={"copy": resource.spec}, conditions=[pw.condition_true("Ready", "Yes")])

    spec = "x" * ((1 << 20) - 2)
    resource = server.apply(manager_of(reconcile), "x" * 512, spec[:-1024])
    assert resource.wait_for("Ready", timeout=60).status.resource_manager_status == {"copy": spec[:-1024]}
    assert server.apply(manager_of(reconcile), "whole", spec).spec == spec


def test_the_resource_tells_how_it_stands(server):
    def reconcile(ctx, resource):
        return ctx.settled(status={"<b>": 1}, conditions=[pw.condition_false("Ready", "No", "<i>")])

    resource = server.apply(manager_of(reconcile), "<one>", 1).wait_settled(60)
    for text in (repr(resource), resource._repr_mimebundle_()["text/plain"]):
        assert "managed resource box <one>" in text
        assert "Ready" in text
    html = resource._repr_mimebundle_()["text/html"]
    assert "<one>" not in html
    assert "<i>" not in html
    with pytest.raises(WaitTimeout, match="not Ready"):
        resource.wait_for("Ready", timeout=0.1)
    with pytest.raises(pw.ManagedResourceNotFoundError):
        server.resources.get("box", "two")
    assert server.resources.get("box", "<one>").uid == resource.uid


def test_a_wait_ends_with_the_server(server, until):
    """Stopped in the middle by somebody else: nobody would ever come to an end of waiting."""

    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_false("Ready", "Never")])

    resource = server.apply(manager_of(reconcile), "one").wait_settled(60)
    stop = threading.Timer(0.3, server.stop)
    stop.start()
    for wait in (resource.wait_for, lambda word: resource.wait_for(word, timeout=60)):
        with pytest.raises(pw.ServerStoppedError):
            wait("Ready")
    stop.join()


def test_the_queue_is_rebuilt_from_the_resources(server, until):
    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])

    manager = manager_of(reconcile)
    made = [server.apply(manager, str(number)).wait_for("Ready", timeout=60).wait_settled(60) for number in range(3)]
    assert server.resource_queue().empty
    assert server.resources.rebuild_queue() == 3
    for resource in made:
        until(lambda resource=resource: list(resource.events()["event_type"]).count("reconcile_finished") == 2)
