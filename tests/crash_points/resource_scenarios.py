"""The life of a managed resource, as a story: a child workflow, effects, another spec, and an end that cleans up."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from typing import Any

from pi_workflows_nb.wire.errors import ManagedResourceNotFoundError

from .play import PATIENCE_SECONDS, Play

CHILD = """
    import pi_workflows_nb as pw
    wf = pw.Workflow("twice", start_at="double")

    @wf.compute
    def double(ctx):
        return 2 * ctx.input
"""
MANAGER = """
    import os, pathlib
    import pi_workflows_nb as pw
    ledger = pathlib.Path({ledger!r})
    m = pw.ResourceManager("box", initial_status={{"made": None}})

    def happened(call):
        return pw.applied() if ledger.exists() and call.key in ledger.read_text().split() else pw.not_applied()

    def append(call):
        file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, (call.key + "\\n").encode())
        os.fsync(file)
        os.close(file)

    @m.reconcile
    def reconcile(ctx, resource):
        n, generation = resource.spec["n"], resource.generation
        if resource.deletion_timestamp is not None:
            if "clean" in resource.finalizers:
                ctx.effects.ensure(f"{{n}}:clean:1", "clean", observe=happened, apply=append)
            return ctx.settled(finalizers=[])
        if "clean" not in resource.finalizers:
            return ctx.requeue(finalizers=["clean"])
        child = ctx.workflows.ensure(f"twice {{generation}}", "twice", n)
        if child.state != "succeeded":
            return ctx.requeue_after(60)
        ctx.effects.ensure(f"{{n}}:make:1", "make", {{"n": n}}, observe=happened, apply=append)
        return ctx.settled(status={{"made": child.output}}, conditions=[pw.condition_true("Ready", "Made")])
"""


def reconciled(play: Play) -> None:
    """Applied, made, changed, made anew, deleted, and gone."""
    for kind, name, code in (("resource-manager", "box", MANAGER), ("workflow", "twice", CHILD)):
        path = play.project / ".pi" / f"{kind}s" / f"{name}.{kind.replace('-', '_')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            textwrap.dedent(code).format(ledger=str(play.folder / "ledger")) if name == "box" else textwrap.dedent(code)
        )
    for n in (1, 2):
        play.again(lambda server, n=n: server.resources.apply("box", "one", {"n": n}, idempotency_key=f"apply {n}"))  # type: ignore[misc]
        _until(play, lambda resource, n=n: resource.status.resource_manager_status == {"made": 2 * n})  # type: ignore[misc]
    play.ask("resourceManager.delete", payload={"key": "one", "project": str(play.project), "resourceManager": "box"})
    _until(play, None)


def _until(play: Play, held: Callable[[Any], bool] | None) -> None:
    """Wait until something holds of the resource, or, without it, until it is gone."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            resource = play.again(lambda server: (server.status(), server.resources.get("box", "one"))[1])
            if held is not None and held(resource):
                return
        except ManagedResourceNotFoundError:
            if held is None:
                return
            raise
        if time.monotonic() > limit:
            raise AssertionError(f"it did not come about: {resource!r}")
        time.sleep(0.005)
