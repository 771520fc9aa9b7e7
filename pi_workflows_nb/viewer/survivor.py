"""A workflow that takes its time, so that its runner can be killed in the middle: packages read one by one.

Every visit of `read` is a step of its own. What a killed runner had finished stands in the file; the next runner goes
on with the package after it.
"""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path
from typing import Any, Final

import pi_workflows_nb as pw

PACKAGES: Final = ("asyncio", "collections", "concurrent", "email", "http", "json", "logging", "urllib")


def read(ctx: pw.Context) -> dict[str, Any]:
    """Count the lines of the next package, and tell whether there are more. Input: packages, seconds for each."""
    packages = ctx.input["packages"]
    done = len(_visits(ctx))
    time.sleep(ctx.input["seconds"])
    return {"lines": lines_of(packages[done]), "more": done + 1 < len(packages), "package": packages[done]}


def total(ctx: pw.Context) -> dict[str, Any]:
    """The sum over all visits, and the packages in the order in which they were read."""
    visits = _visits(ctx)
    return {"lines": sum(visit["lines"] for visit in visits), "packages": [visit["package"] for visit in visits]}


def _visits(ctx: pw.Context) -> list[dict[str, Any]]:
    return [step["output"] for step in ctx.state["steps"] if step["nodeId"] == "read"]


def lines_of(package: str) -> int:
    """The lines of all modules of a package of the standard library."""
    folder = Path(sysconfig.get_path("stdlib"), package)
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py"))


def workflow() -> pw.Workflow:
    """The workflow; its input is `{"packages": […], "seconds": …}`."""
    return pw.define_workflow(
        name="survivor",
        start_at="read",
        nodes={"read": pw.action(read, effect=pw.idempotent_effect("package.read")), "total": pw.compute(total)},
        edges=[pw.switch("read", "$.more", {True: "read", False: "total"})],
        title="Packages of the standard library, one by one",
    )
