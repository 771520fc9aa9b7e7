"""Workflows inside workflows, from a cell to the rows: objects, names, files, kills, answers, sources."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import NotFoundError, WorkflowDefinitionError

CHILD = """
import pi_workflows_nb as pw

wf = pw.Workflow("grow", start_at="add", exits={"small": pw.exit("little"), "big": pw.exit("much")})
wf.compute(name="add")(lambda ctx: {"n": ctx.input + 1, "big": ctx.input > 1})
wf.compute(name="little")(lambda ctx: ctx.outputs["add"]["n"])
wf.compute(name="much")(lambda ctx: ctx.outputs["add"]["n"])
wf.switch("add", "$.big", {True: "much", False: "little"})
"""
PARENT = """
import pi_workflows_nb as pw

wf = pw.Workflow("grows", start_at="child")
wf.include("child", "./grow.workflow.py", input=lambda ctx: ctx.outputs.get("child", {"output": 0})["output"])
wf.compute(name="last")(lambda ctx: ctx.outputs["child"])
wf.edge("child.small", "child")
wf.edge("child.big", "last")
"""
WALK = ["child/add", "child/little", "child/add", "child/little", "child/add", "child/much", "last"]


@pytest.fixture
def folder(server):
    folder = server.project / ".pi" / "workflows"
    folder.mkdir(parents=True)
    (folder / "grow.workflow.py").write_text(CHILD)
    (folder / "grows.workflow.py").write_text(PARENT)
    return folder


def of_objects(gate=None):
    child = pw.Workflow("child", start_at="gate", exits={"done": pw.exit("after")})
    child.checkpoint("gate")

    def after(ctx):
        while gate is not None and not gate.exists():
            time.sleep(0.01)
        return [ctx.input, ctx.outputs["gate"], sorted(ctx.outputs)]

    child.compute(after, name="after")
    child.edge("gate", "after")
    wf = pw.Workflow("holds", start_at="first")
    wf.compute(lambda ctx: ctx.input, name="first")
    wf.include("mid", child, input=lambda ctx: {"text": ctx.outputs["first"]})
    wf.compute(lambda ctx: ctx.outputs, name="last")
    wf.edge("first", "mid")
    wf.edge("mid.done", "last")
    return wf


def walked(server, run):
    return list(server.steps(run=run.chain[-1]).node_id)


def passages(rows):
    return rows(
        "SELECT e.event_type, CAST(b.content AS TEXT) FROM events e JOIN blobs b ON b.blob_hash = e.payload_hash"
        " WHERE e.event_type LIKE 'include_%' ORDER BY e.event_seq"
    )


def test_a_file_that_includes_a_file_runs_as_it_was_when_it_was_started(server, rows, folder):
    run = server.run("grows")
    assert run.wait(timeout=60).output == {"exit": "big", "output": 3}
    assert walked(server, run) == WALK
    recorded = passages(rows)
    assert [event for event, _ in recorded] == ["include_entered", "include_exited"] * 3
    assert json.loads(recorded[1][1]) == {
        "nodeId": "child",
        "payload": {"mountPath": "child", "steps": 2, "value": {"exit": "small", "output": 1}},
        "scope": "node",
    }
    sources = rows("SELECT mount_path, source_type, source_ref FROM run_sources ORDER BY 1")
    assert [tuple(row) for row in sources] == [
        ("", "file", str(folder / "grows.workflow.py")),
        ("child", "file", str(folder / "grow.workflow.py")),
    ]


def test_a_cell_object_that_includes_a_name(server, folder):
    wf = pw.Workflow("mixes", start_at="g", includes={"g": pw.include("grow", input=9)})
    assert server.run(wf).wait(timeout=60).output == {"exit": "big", "output": 10}


def test_what_cannot_be_put_together_is_refused_before_anything_is_committed(server, rows, folder):
    (folder / "grow.workflow.py").write_text(CHILD.replace(', "big": pw.exit("much")', ""))
    with pytest.raises(WorkflowDefinitionError, match="ends at 'much', which is behind none of its exits"):
        server.run("grows")
    with pytest.raises(NotFoundError, match="'nobody'"):
        server.run(pw.Workflow("p", start_at="c", includes={"c": pw.include("nobody")}))
    assert [tuple(row) for row in rows("SELECT count(*) FROM runs")] == [(0,)]


def test_an_answer_inside_a_mount_continues_with_what_the_mount_was_given(server, rows):
    run = server.run(of_objects(), "hello \ud83d")
    while run.status != "waiting":
        time.sleep(0.02)
    run.answer("yes")
    given = {"text": "hello \ud83d"}
    assert run.wait(timeout=60).output["mid"] == {"exit": "done", "output": [given, "yes", ["gate"]]}
    assert walked(server, run) == ["first", "mid/gate", "mid/after", "last"]
    assert [event for event, _ in passages(rows)] == ["include_entered", "include_exited"]


def test_a_runner_killed_inside_a_mount_goes_on_inside_it(server, rows, tmp_path):
    run = server.run(of_objects(tmp_path / "gate"), "x" * 400_000)
    while run.status != "waiting":
        time.sleep(0.02)
    run.answer("yes")
    query = (
        "SELECT w.pid FROM run_workers w JOIN node_attempts a USING (run_id) WHERE w.status = 'running'"
        " AND a.node_id = 'mid/after' AND a.status = 'running' AND w.pid IS NOT NULL"
    )
    while not (found := rows(query)):
        time.sleep(0.02)
    os.kill(found[0][0], signal.SIGKILL)
    (tmp_path / "gate").touch()
    output = run.wait(timeout=60).output["mid"]["output"]
    assert output == [{"text": "x" * 400_000}, "yes", ["gate"]]
    assert walked(server, run) == ["first", "mid/gate", "mid/after", "last"]
    assert [event for event, _ in passages(rows)] == ["include_entered", "include_exited"]
