"""Snapshots and their digests, against those of the implementation whose files this package reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.effects import idempotent_effect, manual_effect
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot

VECTORS = Path(__file__).parents[1] / "vectors"


def f(ctx):
    return ctx


def echo() -> Workflow:
    wf = Workflow("echo", start_at="a")
    wf.compute(name="a")(f)
    return wf


def two() -> Workflow:
    wf = Workflow("two", start_at="first")
    wf.compute(name="first", timeout=1.0, status_detail="x")(f)
    wf.shell("second", exec={"command": "true"}, effect=manual_effect("shell"))
    wf.edge("first", "second")
    return wf


@pytest.mark.parametrize(("number", "make"), [(0, echo), (1, two)])
def test_digest(number, make):
    vector = json.loads((VECTORS / "store.json").read_text())["definition_digests"][number]
    assert definition_snapshot(make()) == vector["snapshot"]
    assert definition_digest(definition_snapshot(make())).hex() == vector["sha256"]


def compute_pair() -> Workflow:
    wf = Workflow("exec-compute", start_at="a")
    wf.compute(name="a", status_detail="adding")(f)
    wf.compute(name="b", timeout=None)(f)
    wf.edge("a", "b")
    return wf


def shells() -> Workflow:
    wf = Workflow("exec-shell", start_at="sh")
    wf.shell("sh", exec={"command": "true"}, effect=idempotent_effect("shell"))
    wf.action(name="fn", effect=manual_effect("fn"))(f)
    wf.compute(name="end")(f)
    wf.edge("sh", "fn")
    wf.edge("fn", "end")
    return wf


def timing() -> Workflow:
    wf = Workflow("exec-timeout", start_at="slow")
    wf.compute(name="slow", timeout=0.02)(f)
    return wf


def route() -> Workflow:
    wf = Workflow("exec-route", start_at="pick")
    for name in ("pick", "left", "right"):
        wf.compute(name=name)(f)
    wf.switch("pick", "$.route", {"left": "left", "right": "right"})
    return wf


def waiting() -> Workflow:
    wf = Workflow("exec-waiting", start_at="gate")
    wf.checkpoint("gate", summary="please look")
    wf.compute(name="after")(f)
    wf.edge("gate", "after")
    return wf


def loop() -> Workflow:
    wf = Workflow("exec-loop", start_at="x")
    wf.compute(name="x")(f)
    wf.switch("x", "$.again", {True: "x"})
    return wf


@pytest.mark.parametrize("make", [compute_pair, shells, timing, route, waiting, loop])
def test_snapshots_of_workflows_that_were_run(make):
    wf = make()
    rows = json.loads((VECTORS / "original-rows.json").read_text())["tables"]["blobs"]
    stored = [
        json.loads(row["content"]["utf8"])
        for row in rows
        if '"pi-workflows.definition' in row["content"].get("utf8", "")
    ]
    (wanted,) = [snapshot for snapshot in stored if snapshot["name"] == wf.name]
    # A workflow that mounts nothing is stored here without an empty list of mounts.
    assert wanted.pop("composition") == {"mounts": []}
    assert definition_snapshot(wf) == wanted


def test_agents_and_contracts():
    wf = Workflow("w", start_at="a", contract_id="c1")
    wf.agent(name="a", expected_output="a number")(f)
    wf.decision(name="d", choices={"x": "the first", "y": ""}, timeout=lambda ctx: 3)(f)
    wf.decision_edge("d", {"x": "a", "y": "a"})
    snapshot = definition_snapshot(wf)
    assert snapshot["contractId"] == "c1"
    assert snapshot["nodes"] == {
        "a": {"nodeType": "agent", "expectedOutput": "a number"},
        "d": {"nodeType": "agent", "expectedOutput": '{"route": "x" | "y"}\nx: the first'},
    }
    assert snapshot["edges"] == [{"from": "d", "switch": {"on": "$.route", "cases": {"x": "a", "y": "a"}}}]
