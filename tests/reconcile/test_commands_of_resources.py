"""What clients ask of managed resources, frame by frame, with receipts; and a second kernel on the same server."""

from __future__ import annotations

import json

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.sockets import socket_path
from tests.client.raw import RawClient
from tests.client.test_commands import digests
from tests.kernels import kernel

BOX = """
    m = pw.ResourceManager("box", initial_status={"phase": "new"})

    @m.reconcile
    def reconcile(ctx, resource):
        if (here / "hold").exists():
            return ctx.settled(finalizers=["hold"])
        return ctx.settled(status={"phase": "done"}, conditions=[pw.condition_true("Ready", "Yes")], finalizers=[])
"""


@pytest.fixture
def client(server, state_folder, write):
    write("box", BOX)
    made = RawClient(socket_path(server.database, state_folder))
    yield made
    made.close()


@pytest.fixture
def ask(client, server):
    """Ask about the resource `one` of `box`."""

    def send(operation, payload=None, key=None):
        named = {"key": "one", "project": str(server.project), "resourceManager": "box", **(payload or {})}
        more = {} if key is None else {"idempotencyKey": key}
        return client.ask(f"resourceManager.{operation}", named, **more)

    return send


def test_each_change_has_a_receipt_and_is_done_once(server, ask, until, rows):
    first = ask("apply", {"spec": {"inline": {"n": 1}}}, key="a")
    assert first["outcome"] == "accepted"
    assert set(first["receipt"]) == {"created", "generation", "key", "resourceManager", "resourceVersion", "uid"}
    assert (first["receipt"]["created"], first["receipt"]["generation"]) == (True, 1)
    again = ask("apply", {"spec": {"inline": {"n": 1}}}, key="a")
    assert (again["outcome"], again["receipt"]) == ("adopted", first["receipt"])
    assert ask("apply", {"spec": {"inline": {"n": 2}}}, key="a")["outcome"] == "conflict"
    resource = server.resources.get("box", "one").wait_for("Ready", timeout=60).wait_settled(60)
    assert resource.generation == 1
    woken = ask("reconcile", key="r")
    assert woken["outcome"] == "accepted"
    resource.wait_settled(60)
    until(lambda: server.status()["runners"] == 0)
    before = digests(server.database)
    assert ask("reconcile", key="r")["receipt"] == woken["receipt"]
    assert ask("apply", {"spec": {"inline": {"n": 1}}}, key="a")["receipt"] == first["receipt"]
    changed = {name for name, digest in digests(server.database).items() if digest != before[name]}
    assert changed <= {"workflow_host_state", "host_commands"}
    gone = ask("delete", key="d")
    assert gone["outcome"] == "accepted"
    resource.wait_deleted(60)
    assert ask("delete", key="d")["receipt"] == gone["receipt"], "also when the resource is gone"
    assert ask("delete", key="e")["outcome"] == "notFound"
    operations = {operation for (operation,) in rows("SELECT operation FROM host_commands")}
    assert operations == {f"resourceManager.{word}" for word in ("apply", "reconcile", "delete")}


def test_lists_and_gets_tell_what_is_there(ask, client, server):
    assert ask("list")["receipt"] == {"resources": []}
    assert ask("get")["outcome"] == "notFound"
    ask("apply", {"spec": {"inline": [1, "<b>"]}})
    server.resources.get("box", "one").wait_for("Ready", timeout=60)
    (found,) = ask("list")["receipt"]["resources"]
    assert (found["key"], found["resourceManager"], found["conditions"]) == ("one", "box", {"Ready": True})
    assert ask("list", {"resourceManager": "other"})["receipt"] == {"resources": []}
    assert client.ask("resourceManager.list", {"project": "/elsewhere"})["receipt"] == {"resources": []}
    got = ask("get")["receipt"]
    assert got["spec"] == {"inline": [1, "<b>"]}
    assert got["status"]["inline"]["resourceManagerStatus"] == {"phase": "done"}
    assert found.items() <= got.items()


@pytest.mark.parametrize(
    ("operation", "payload", "outcome"),
    [
        ("apply", {"spec": {"inline": 1}, "resourceManager": "no-such"}, "notFound"),
        ("apply", {"spec": {"inline": 1}, "key": ""}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "key": "x" * 513}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "key": 3}, "rejected"),
        ("apply", {}, "rejected"),
        ("apply", {"spec": 3}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "definition": {"inline": {"frozen": 3}}}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "definition": {"inline": 3}}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "project": 3}, "rejected"),
        ("apply", {"spec": {"inline": 1}, "environment": 3}, "rejected"),
        ("reconcile", {}, "notFound"),
        ("delete", {}, "notFound"),
        ("delete", {"force": "yes"}, "rejected"),
        ("list", {"limit": "many"}, "rejected"),
        ("list", {"project": 3}, "rejected"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(server, ask, operation, payload, outcome):
    response = ask(operation, payload)
    assert response["outcome"] == outcome, response["error"]
    assert response["error"]
    assert server.resources().empty
    assert ask("list")["outcome"] == "accepted", "and the connection goes on"


def test_force_is_told_with_what_it_dropped(server, ask):
    (server.project / "hold").touch()
    ask("apply", {"spec": {"inline": 1}})
    server.resources.get("box", "one").wait_settled(60)
    receipt = ask("delete", {"force": True}, key="f")["receipt"]
    assert (receipt["deleted"], receipt["finalizers"]) == (True, ["hold"])
    assert ask("delete", {"force": True}, key="f")["receipt"] == receipt
    assert server.resources().empty


@pytest.mark.parametrize("action", ["confirm", "retry"])
def test_effects_are_settled_by_commands(server, client, write, until, action):
    write(
        "box",
        """
        m = pw.ResourceManager("box")

        @m.reconcile
        def reconcile(ctx, resource):
            effect = ctx.effects.ensure("k", "touch", apply=lambda: (here / "calm").read_text())
            return ctx.settled(status={"state": effect.state})
        """,
    )
    resource = server.resources.apply("box", "one").wait_settled(60)
    effect_id = server.effects(status="ambiguous").index[0]
    (server.project / "calm").touch()
    first = client.ask(f"effect.{action}", {"effectId": effect_id, "externalRef": None}, idempotencyKey="k")
    assert first["outcome"] == "accepted", first["error"]
    until(lambda: resource.status.resource_manager_status == {"state": "applied"})
    again = client.ask(f"effect.{action}", {"effectId": effect_id, "externalRef": None}, idempotencyKey="k")
    assert (again["outcome"], again["receipt"]) == ("adopted", first["receipt"])
    assert client.ask(f"effect.{action}", {"effectId": effect_id})["outcome"] == "conflict"


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_second_kernel_sees_and_does_the_same_and_outlives_the_first(tmp_path, placement):
    folder = tmp_path / ".pi" / "resource-managers"
    folder.mkdir(parents=True)
    head = "import pathlib\nimport pi_workflows_nb as pw\nhere = pathlib.Path.cwd()\n"
    (folder / "box.resource_manager.py").write_text(head + BOX.replace("\n    ", "\n"))
    start = f"import pi_workflows_nb as pw, json\nserver = pw.start(database='s.sqlite', server={placement!r})"
    inline = """
m = pw.ResourceManager("inline")
@m.reconcile
def reconcile(ctx, resource):
    return ctx.settled(status={"said": resource.spec}, conditions=[pw.condition_true("Ready", "Yes")])
"""
    with kernel(tmp_path) as first, kernel(tmp_path) as second:
        first.run(f"{start}\nr = server.resources.apply('box', 'one', {{'n': 1}}).wait_for('Ready', timeout=60)")
        second.run(f"{start}\nr = server.resources.get('box', 'one')")
        look = "print(json.dumps([r.spec, r.status.resource_manager_status, len(server.resources())]))"
        for each in (first, second):
            assert json.loads(each.run(look)) == [{"n": 1}, {"phase": "done"}, 1]
        second.run(f"{inline}\no = server.apply(m, 'two', 'x' * 300_000).wait_for('Ready', timeout=60)")
        assert first.run("print(len(server.resources.get('inline', 'two').spec))") == "300000\n"
        second.run("r.delete().wait_deleted(60)")
        assert first.run("print(r.exists)") == "False\n"
        if placement == "thread":
            first.kill()
        second.run("o = server.apply(m, 'three', 3).wait_for('Ready', timeout=60); server.stop()")
    with pw.open_state(tmp_path / "s.sqlite") as state:
        assert sorted(state.resources()["key"]) == ["three", "two"]
        assert state.verify().empty
