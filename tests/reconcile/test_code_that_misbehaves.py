"""Managers whose other parts misbehave: sources and first statuses that never come, effects that hang, hot loops."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.resource_managers import backoff
from pi_workflows_nb.server import inspecting

GOOD = """
    m = pw.ResourceManager("good")

    @m.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])
"""
FOREVER = """
    def forever(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
"""


@pytest.fixture
def placement():
    """In this process, where times can be made shorter."""
    return "thread"


@pytest.mark.parametrize(
    "code",
    [
        "forever()\n    m = pw.ResourceManager('bad')",
        "m = pw.ResourceManager('bad', initial_status=forever)\n    m.reconcile(forever)",
    ],
    ids=["source", "first status"],
)
def test_what_does_not_answer_is_told_and_hurts_nobody(server, write, monkeypatch, code):
    monkeypatch.setattr(inspecting, "INSPECT_SECONDS", 1.0)
    write("bad", f"{FOREVER}\n    {code}")
    write("good", GOOD)
    with pytest.raises(pw.SourceError, match="did not answer within"):
        server.resources.apply("bad", "one")
    assert server.resources().empty
    server.resources.apply("good", "one").wait_for("Ready", timeout=60)


def test_a_source_that_broke_later_is_told_by_its_passes_and_heals(server, write, until, payloads, monkeypatch):
    monkeypatch.setattr(backoff, "BASE_MS", 10)
    write("good", GOOD)
    resource = server.resources.apply("good", "one").wait_for("Ready", timeout=60)
    write("good", "this is no Python")
    resource.reconcile()
    assert "SyntaxError" in until(lambda: payloads(resource, "reconcile_failed"))[0]["error"]
    write("good", GOOD.replace("Yes", "Again"))
    until(lambda: resource.conditions["Ready"].reason == "Again")
    resource.wait_settled(60)
    assert server.resource_queue().empty


@pytest.mark.parametrize("part", ["apply", "observe"])
def test_an_effect_that_hangs_is_looked_for_by_the_next_pass(server, write, payloads, types, monkeypatch, part):
    monkeypatch.setattr(backoff, "BASE_MS", 10)
    write(
        "box",
        f"""
        m = pw.ResourceManager("box", timeout=0.7)
        world = here / "world"

        def hang(mark):
            if not (here / mark).exists():
                (here / mark).touch()
                time.sleep(1000)

        def seen():
            if {part!r} == "observe":
                hang("in observe")
            return pw.applied("found") if world.exists() else pw.not_applied()

        def doing():
            with open(world, "a") as file:
                file.write("done ")
            hang("in apply")

        @m.reconcile
        def reconcile(ctx, resource):
            effect = ctx.effects.ensure("k", "touch", observe=seen, apply=doing)
            return ctx.settled(conditions=[pw.condition_true("Ready", effect.external_ref)])
        """,
    )
    resource = server.resources.apply("box", "one").wait_for("Ready", timeout=60)
    assert (server.project / "world").read_text() == "done "
    assert resource.conditions["Ready"].reason == "found"
    assert len(payloads(resource, "reconcile_failed")) == (1 if part == "apply" else 2)
    assert types(resource).count("effect_recovered") == 1


def test_a_resource_that_is_never_content_starves_nobody(server, write):
    write(
        "hot",
        """
        m = pw.ResourceManager("hot")

        @m.reconcile
        def reconcile(ctx, resource):
            return ctx.requeue() if resource.deletion_timestamp is None else ctx.settled()
        """,
    )
    write("good", GOOD)
    hot = [server.resources.apply("hot", str(number)) for number in range(6)]
    for number in range(6):
        server.resources.apply("good", str(number)).wait_for("Ready", timeout=60)
    for resource in hot:
        resource.delete().wait_deleted(60)
