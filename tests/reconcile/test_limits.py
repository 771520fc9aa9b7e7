"""How many passes run at once: four in all, fewer for a manager that says so; and how long a claim lasts."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.resource_managers import backoff, passes
from pi_workflows_nb.server.options import MAX_PASSES

WAITS = """
    m = pw.ResourceManager({name!r}, concurrency={limit})

    @m.reconcile
    def reconcile(ctx, resource):
        mark = here / f"in-{name}-{{resource.key}}"
        mark.touch()
        while not (here / "gate").exists():
            time.sleep(0.01)
        mark.rename(here / f"out-{name}-{{resource.key}}")
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
"""


@pytest.mark.parametrize(("limit", "expected"), [(None, MAX_PASSES), (1, 1), (3, 3), (100, MAX_PASSES)])
def test_so_many_passes_run_at_once(server, write, until, limit, expected):
    write("box", WAITS.format(name="box", limit=limit))
    made = [server.resources.apply("box", str(number)) for number in range(7)]
    held = lambda: int(server.resource_queue()["held"].sum())  # noqa: E731
    until(lambda: len(list(server.project.glob("in-*"))) == expected and held() == expected)
    (server.project / "gate").touch()
    for resource in made:
        resource.wait_for("Ready", timeout=60)


def test_the_limit_of_a_manager_leaves_room_for_others(server, write, until):
    write("slow", WAITS.format(name="slow", limit=1))
    write("other", WAITS.format(name="other", limit=2))
    for number in range(3):
        server.resources.apply("slow", str(number))
        server.resources.apply("other", str(number))
    until(
        lambda: len(list(server.project.glob("in-slow-*"))) == 1 and len(list(server.project.glob("in-other-*"))) == 2
    )
    (server.project / "gate").touch()
    for number in range(3):
        server.resources.get("slow", str(number)).wait_for("Ready", timeout=60)


def test_one_resource_is_never_worked_on_twice_at_once(server, until):
    manager = pw.ResourceManager("box")

    @manager.reconcile
    def reconcile(ctx, resource):
        import os
        import time

        path = "busy"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        time.sleep(0.02)
        os.unlink(path)
        return ctx.settled(status={"spec": resource.spec})

    resource = server.apply(manager, "one", 0)
    for number in range(1, 15):
        server.apply(manager, "one", number)
        resource.reconcile()
    until(lambda: resource.status.resource_manager_status == {"spec": 14})
    assert "reconcile_failed" not in set(resource.events()["event_type"])


def test_a_rest_doubles_up_to_a_minute_within_a_fifth():
    assert [backoff.delay_ms(number, 0.5) for number in (1, 2, 3, 6, 7, 8, 100)] == [
        1000,
        2000,
        4000,
        32000,
        60000,
        60000,
        60000,
    ]
    assert (backoff.delay_ms(1, 0.0), backoff.delay_ms(1, 1.0)) == (800, 1200)
    assert all(48_000 <= backoff.delay_ms(50) <= 72_000 for _ in range(100))


def test_a_claim_lasts_two_minutes(server, write, until):
    write("box", WAITS.format(name="box", limit=None))
    resource = server.resources.apply("box", "one")
    until(lambda: server.resource_queue()["held"].sum() == 1)
    row = server.resource_queue().iloc[0]
    claimed = resource.events().query("event_type == 'lease.claimed'").iloc[0]
    assert int((row["expires_at"] - claimed["recorded_at"]).total_seconds() * 1000) == passes.LEASE_MS == 120_000
    (server.project / "gate").touch()
    resource.wait_for("Ready", timeout=60)
