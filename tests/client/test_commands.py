"""Commands: every operation is answered, each once, and its receipt lasts."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook.attachment import Attachment
from pi_workflows_nb.server.requests import NOT_YET
from tests.hostile.surroundings import until

ALL = (
    "run.start", "run.pause", "run.resume", "run.cancel", "run.status", "run.list", "run.restart",
    "run.changeSettings", "checkpoint.answer", "decision.answer", "interaction.submit", "interaction.update",
    "workflowMessage.reportBranch", "workflowTurn.report", "sessionView.clearTerminal", "followUp.queue",
    "followUp.remove", "session.record", "channel.reload", "channel.recover", "resourceManager.list",
    "resourceManager.get", "resourceManager.apply", "resourceManager.reconcile", "resourceManager.delete",
    "server.status", "state.backup", "state.prune",
)  # fmt: skip


def digests(path):
    """A digest of the rows of each table."""
    found = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        for (name,) in names:
            rows = sorted(repr(row) for row in connection.execute(f'SELECT * FROM "{name}"'))
            found[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


@pytest.mark.parametrize("placement", ["thread"])
def test_every_operation_is_answered(server, connect):
    client = connect()
    for operation in ALL:
        response = client.ask(operation)
        if operation in NOT_YET:
            assert response["outcome"] == "unavailable"
            assert response["error"] == f"{operation}: {NOT_YET[operation]}"
            assert "\n" not in response["error"]
        else:
            assert "is not an operation" not in (response["error"] or ""), operation
    response = client.ask("run.explode")
    assert (response["outcome"], response["error"]) == ("rejected", "run.explode is not an operation")


def test_a_key_stands_for_one_request(server, connect, gated):
    run = server.run(gated)
    until(lambda: run.status == "running")
    client, again = connect(), connect()
    first = client.ask("run.pause", run_id=run.id, idempotencyKey="k")
    assert first["outcome"] == "accepted"
    second = again.ask("run.pause", run_id=run.id, idempotencyKey="k")
    assert second["outcome"] == "adopted"
    assert (second["receipt"], second["revision"]) == (first["receipt"], first["revision"])
    assert client.ask("run.cancel", run_id=run.id, idempotencyKey="k")["outcome"] == "conflict"
    assert client.ask("run.pause", {"other": 1}, run_id=run.id, idempotencyKey="k")["outcome"] == "conflict"
    stranger = connect(client_id="another")
    assert stranger.ask("run.cancel", run_id=run.id, idempotencyKey="k")["outcome"] == "accepted"
    frame = client.frame("run.pause", run_id=run.id, idempotencyKey="other")
    used = server.sql("SELECT request_id FROM host_commands WHERE operation = 'run.pause'").request_id[0]
    client.send(frame | {"requestId": used})
    assert client.answer(used)["outcome"] == "conflict"


@pytest.mark.parametrize("placement", ["thread"])
def test_outcomes_tell_what_is_wrong(server, connect, gated):
    client = connect()
    assert client.ask("run.pause", run_id="no-such-run")["outcome"] == "notFound"
    assert client.ask("run.pause")["outcome"] == "rejected"
    assert client.ask("run.start", {"workflow": 1})["outcome"] == "rejected"
    assert client.ask("content.read", {"offset": 0, "sha256": "00" * 32})["outcome"] == "notFound"
    assert client.ask("content.write", {"offset": 0})["outcome"] == "rejected"
    assert client.ask("run.list", {"limit": "many"})["outcome"] == "rejected"
    run = server.run(gated)
    until(lambda: len(server.attempts()) == 1)  # it stands at its gate, and its revision is the last for now
    response = client.ask("run.cancel", run_id=run.id, expectedRevision=1)
    assert response["outcome"] == "conflict"
    present = server.sql("SELECT revision FROM resources WHERE aggregate_key = ?", [run.id]).revision[0]
    assert response["revision"] == present
    assert client.ask("run.cancel", run_id=run.id, expectedRevision=int(present))["outcome"] == "accepted"
    assert client.ask("checkpoint.answer", {"value": {"inline": 1}}, run_id=run.id)["outcome"] == "conflict"


def test_replayed_requests_change_nothing(tmp_path, placement, monkeypatch):
    asked = []
    original = Attachment.request

    def request(self, operation, payload, *, run_id=None, key=None, client_id=None):
        key = key or f"key-{len(asked)}"
        response = original(self, operation, payload, run_id=run_id, key=key, client_id=client_id)
        asked.append(((operation, payload), {"run_id": run_id, "key": key, "client_id": client_id}, response))
        return response

    monkeypatch.setattr(Attachment, "request", request)
    gate = tmp_path / "gate"
    wf = pw.Workflow("asks", start_at="shape", max_steps=10)

    @wf.compute
    def shape(ctx):
        import time

        while not gate.exists():
            time.sleep(0.01)
        return ctx.input

    wf.checkpoint("gate", summary="look")

    @wf.action(effect=pw.manual_effect("post"))
    def post(ctx):
        import os

        if ctx.effect.attempt_number == 1:
            os._exit(3)
        return "posted"

    wf.edge("shape", "gate")
    wf.edge("gate", "post")
    path = tmp_path / "s.sqlite"
    server = pw.start(database=path, project=tmp_path, server=placement)
    large = "x" * 2_000_000
    run = server.run(wf, large)
    adopted = server.run(wf, large, key="mine")
    until(lambda: run.status == "running")
    run.pause()
    run.resume()
    adopted.cancel()
    gate.touch()
    assert run.wait(timeout=60).status == "waiting"
    run.answer({"said": large})
    assert run.wait(timeout=60).status == "ambiguous"
    server.get_effect(server.effects(status="ambiguous").index[0]).retry()
    assert run.wait(timeout=60).output == "posted"
    commands = [one for one in asked if one[0][0] not in ("run.status", "server.status", "run.list")]
    assert {one[0][0] for one in commands} >= {
        "run.start",
        "run.pause",
        "run.resume",
        "run.cancel",
        "checkpoint.answer",
    }

    def replay():
        until(lambda: server.status()["runners"] == 0)
        before = digests(path)
        for args, how, response in list(commands):
            asker = how["client_id"] or server._connection._client_id
            again = original(server._connection, *args, **{**how, "client_id": asker})
            assert again.outcome == "adopted", (args[0], again.error)
            assert (again.receipt or {}).get("runId") == (response.receipt or {}).get("runId")
            assert again.revision == response.revision
        after = digests(path)
        changed = {name for name in before if before[name] != after[name]}
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
