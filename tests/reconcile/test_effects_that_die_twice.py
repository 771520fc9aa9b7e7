"""An effect whose pass dies, and so does the next one, at each point on the way: it happens once all the same."""

from __future__ import annotations

import pytest

from pi_workflows_nb.resource_managers import backoff

DYING = """
    from pi_workflows_nb.runner import reconcile_context

    m = pw.ResourceManager("box")
    world, points = here / "world", {points!r}
    real = reconcile_context.Server.ask

    def reach(point):
        died = len(list(here.glob("died-*")))
        if died < len(points) and points[died] == point:
            (here / f"died-{{died}}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def ask(self, operation, payload):
        reach("before " + operation)
        answer = real(self, operation, payload)
        reach("after " + operation)
        return answer

    reconcile_context.Server.ask = ask

    def seen():
        reach("before looking")
        found = pw.applied("found") if world.exists() else pw.not_applied()
        reach("after looking")
        return found

    def doing(call):
        reach("before the world")
        with open(world, "a") as file:
            print(call.key, file=file, flush=True)
        reach("after the world")
        return pw.applied("made")

    @m.reconcile
    def reconcile(ctx, resource):
        effect = ctx.effects.ensure("k", "touch", {{"n": 1}}, observe=seen, apply=doing)
        return ctx.settled(status={{"state": effect.state}}, conditions=[pw.condition_true("Ready", "Looked")])
"""
LOOKING = ["before looking", "after looking"]
SETTLING = ["before resource.updateEffect", "after resource.updateEffect"]
APPLYING = ["before resource.beginEffect", "after resource.beginEffect", "before the world", "after the world"]
NOT_DONE, DONE = "after resource.reserveEffect", "after the world"
DEATHS = [
    *([NOT_DONE, second] for second in [*LOOKING, *APPLYING, *SETTLING]),
    *([DONE, second] for second in [*LOOKING, *SETTLING]),
    [NOT_DONE, "after resource.beginEffect", "after the world", "before resource.updateEffect"],
]


@pytest.fixture
def placement():
    """In this process, where the rest after a failure can be made shorter."""
    return "thread"


@pytest.mark.parametrize("points", DEATHS, ids=" then ".join)
def test_it_happens_once(server, write, types, monkeypatch, points):
    monkeypatch.setattr(backoff, "BASE_MS", 10)
    write("box", DYING.format(points=points))
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60).wait_settled(60)
    assert len(list(server.project.glob("died-*"))) == len(points), "each point was on the way"
    assert (server.project / "world").read_text().split() == ["k"]
    assert list(server.effects()["status"]) == ["applied"]
    assert types(resource).count("reconcile_failed") == len(points)
    assert types(resource).count("effect_applied") + types(resource).count("effect_recovered") == 1
