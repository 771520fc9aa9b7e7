"""A client that asks everything once more, under the same keys, gets the same receipts and changes nothing."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook.attachment import Attachment
from tests.client.test_commands import ALL, NOT_YET, digests
from tests.hostile.surroundings import until

LOOKS = {"run.status", "run.list", "server.status", "resourceManager.list", "resourceManager.get"}
LOOKS |= {"session.attach", "session.wait"}
OURS = {"run.restart", "checkpoint.signal", "effect.confirm", "effect.retry", "resourceManager.rebuildQueue"}
OURS |= {"workflowMessage.take"}
OPEN = pw.allow_settings_path("", read=["human"], add=["human"], replace=["human"], remove=["human"])
LARGE = "x" * 2_000_000
SAID_OF_THE_ANSWER = {"adopted", "note"}
REQUEST = Attachment.request


@pytest.fixture
def asked(monkeypatch):
    """Every request that was made: how, and what came back."""
    found = []

    def noted(self, operation, payload, *, run_id=None, key=None, client_id=None):
        how = {"run_id": run_id, "key": key or f"key-{len(found)}"}
        response = REQUEST(self, operation, payload, client_id=client_id, **how)
        if operation not in LOOKS:
            found.append(((operation, payload), {**how, "client_id": client_id}, response))
        return response

    monkeypatch.setattr(Attachment, "request", noted)
    return found


def controls(server, gate):
    wf = pw.Workflow("asks", start_at="shape", settings=pw.workflow_settings(initial={"n": 1}, paths=[OPEN]))

    @wf.compute
    def shape(ctx):
        import time

        while not gate.exists():
            time.sleep(0.01)
        return ctx.input

    wf.checkpoint("gate", summary="look")
    wf.wait_event("bell", "rung")
    wf.compute(lambda ctx: 1 / 0, name="fail")
    wf.edge("shape", "gate")
    wf.edge("gate", "bell")
    wf.edge("bell", "fail")
    run, adopted = server.run(wf, LARGE), server.run(wf, LARGE, key="mine")
    until(lambda: run.status == "running")
    run.change_settings([{"op": "replace", "path": "/n", "value": 2}])
    run.pause()
    run.resume()
    adopted.cancel()
    gate.touch()
    assert run.wait(timeout=60).status == "waiting"
    run.answer({"said": LARGE})
    until(lambda: server.signal("rung", LARGE) == 1)
    assert run.wait(timeout=60, until="end").status == "failed"
    again = run.restart()
    until(lambda: again.status == "waiting")
    again.cancel()


def effects(server):
    wf = pw.Workflow("posts", start_at="post")

    @wf.action(effect=pw.manual_effect("post"))
    def post(ctx):
        import os

        if ctx.effect.attempt_number == 1:
            os._exit(3)
        return "posted"

    for act in (lambda effect: effect.retry(), lambda effect: effect.confirm("letter 7")):
        run = server.run(wf)
        assert run.wait(timeout=60).status == "ambiguous"
        (effect_id,) = server.effects(status="ambiguous").index
        act(server.get_effect(effect_id))
        run.wait(timeout=60, until="end")


def follow_ups(server):
    wf = pw.Workflow("talks", start_at="gate")
    wf.checkpoint("gate")
    run = server.run(wf, mode="interactive")
    until(lambda: run.status == "waiting")
    run.queue_follow_up("kept")
    run.remove_follow_up(run.queue_follow_up("taken back"))


def sessions(server):
    wf = pw.Workflow("wonders", start_at="which")
    wf.agent(lambda ctx: "which?", name="which")
    run = server.run(wf)
    until(lambda: len(server.inbox()) == 1)
    server.inbox()["which"].answer(LARGE)
    assert run.wait(timeout=60).output == LARGE
    server.session.agent(lambda request: "this")
    assert server.run(wf).wait(timeout=60).output == "this"
    until(lambda: list(server.turns().state) == ["ended"])
    server.session.agent(None)
    wf = pw.Workflow("decides", start_at="ship")
    wf.human_decision(choices=pw.human_choices(yes=pw.choice("Yes")), name="ship")(lambda ctx: "ship?")
    run = server.run(wf)
    until(lambda: len(server.inbox()) == 1)
    server.inbox()["ship"].answer("yes")
    assert run.wait(timeout=60, until="end").output == {"choice": "yes"}


def resources(server):
    manager = pw.ResourceManager("box")

    @manager.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(conditions=[pw.condition_true("Ready", "Yes")])

    kept = server.apply(manager, "kept", {"n": LARGE[:500_000]}).wait_for("Ready", timeout=60).wait_settled(60)
    gone = server.apply(manager, "gone", {}).wait_for("Ready", timeout=60).wait_settled(60)
    kept.reconcile().wait_settled(60)
    server.resources.rebuild_queue()
    gone.delete().wait_deleted(60)


def test_replayed_requests_change_nothing(tmp_path, placement, asked):
    path = tmp_path / "s.sqlite"
    server = pw.start(database=path, project=tmp_path, server=placement)
    controls(server, tmp_path / "gate")
    effects(server)
    follow_ups(server)
    sessions(server)
    resources(server)
    server.backup(tmp_path / "copy.sqlite")
    server.prune("2001-01-01", apply=True, backup=tmp_path / "another.sqlite")
    assert {how[0] for how, _, _ in asked} == (set(ALL) | OURS) - LOOKS - set(NOT_YET)

    def replay():
        until(lambda: server.status()["runners"] == 0)
        before = digests(path)
        for how, more, response in asked:
            asker = more["client_id"] or server._connection._client_id
            again = REQUEST(server._connection, *how, **{**more, "client_id": asker})
            assert again.outcome == "adopted", (how[0], again.error)
            assert again.revision == response.revision
            same = {name: value for name, value in (response.receipt or {}).items() if name not in SAID_OF_THE_ANSWER}
            assert {name: (again.receipt or {}).get(name) for name in same} == same, how[0]
        changed = {name for name, digest in digests(path).items() if digest != before[name]}
        assert changed <= {"workflow_host_state", "host_commands"}

    replay()
    client_id = server._connection._client_id
    server.stop()
    server = pw.start(database=path, project=tmp_path, server=placement)
    server._connection._client_id = client_id
    replay()
    server.stop()


def test_a_replayed_stop_does_not_stop_the_next_server(tmp_path, placement):
    path = tmp_path / "s.sqlite"
    server = pw.start(database=path, project=tmp_path, server=placement)
    raw = server._connection._present
    assert raw.request("server.stop", {}, key="stop", client_id="me").outcome == "accepted"
    until(lambda: not server.alive)
    with pw.start(database=path, project=tmp_path, server=placement) as server:
        again = server._connection.request("server.stop", {}, key="stop", client_id="me")
        assert again.outcome == "adopted"
        assert server.status()["epoch"] == 2
