"""Commands: every operation is answered, each once, and its receipt lasts."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing

import pytest

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
