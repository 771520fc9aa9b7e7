"""What is no frame of the protocol ends that connection, and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.sockets import socket_path
from tests.fuzz import mutations
from tests.hostile.surroundings import gated

LONG = b'{"x":"' + b"x" * (1 << 20) + b'"}\n'


def bad(client, kind):
    """The bytes of a frame that is not one."""
    good = client.frame("server.status")
    canonical = json.dumps(good, sort_keys=True, separators=(",", ":")).encode()
    return {
        "no JSON": b"hello\n",
        "not canonical": json.dumps(good).encode() + b"\n",
        "keys out of order": json.dumps(dict(reversed(good.items())), separators=(",", ":")).encode() + b"\n",
        "unknown field": json.dumps(good | {"zz": 1}, sort_keys=True, separators=(",", ":")).encode() + b"\n",
        "missing field": canonical.replace(b'"runId":null,', b"") + b"\n",
        "wrong schema": canonical.replace(b"client.v1", b"client.v9") + b"\n",
        "unknown type": canonical.replace(b'"type":"request"', b'"type":"rumour"') + b"\n",
        "another's part": canonical.replace(b'"type":"request"', b'"type":"response"') + b"\n",
        "too long": LONG,
        "too long without an end": LONG[:-1],
        "no text": b"\xff\xfe\n",
        "empty": b"\n",
    }[kind]


KINDS = (
    "no JSON", "not canonical", "keys out of order", "unknown field", "missing field", "wrong schema", "unknown type",
    "another's part", "too long", "too long without an end", "no text", "empty",
)  # fmt: skip


@pytest.mark.parametrize("placement", ["thread"])
def test_a_bad_frame_closes_that_connection_alone(server, connect):
    other = connect()
    for kind in KINDS:
        client = connect()
        try:
            client.write(bad(client, kind))
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed before all of it was written
        assert client.line() is None, kind
        assert other.ask("server.status")["outcome"] == "accepted", kind
        client.close()
    assert server.status()["epoch"] == 1


def test_frames_spoilt_anyhow_are_answered_or_end_their_connection(server, connect, tmp_path):
    chance, gate = random.Random(4), tmp_path / "gate"
    run = server.run(gated(gate, tmp_path / "ledger"))
    seeds = [
        canonical_json.encode(connect().frame(operation, payload, run.id))
        for operation, payload in (
            ("run.status", {}),
            ("run.list", {"limit": 3}),
            ("subscribe", {"subject": "run"}),
            ("run.answer", {"value": {"inline": 1}}),
            ("content.read", {"offset": 0, "sha256": "0" * 64}),
            (
                "content.write",
                {"base64": "MQ==", "bytes": 1, "mediaType": "text/plain", "offset": 0, "sha256": "0" * 64},
            ),
        )
    ]
    for _ in range(150):
        frame = mutations.spoilt(chance.choice(seeds), seeds, chance)
        client = connect()
        try:
            good = canonical_json.encode(client.frame("server.status"))
            client.write(frame.replace(b"\n", b" ") + b"\n" + good + b"\n")
            while (heard := client.line()) is not None and not (heard.get("receipt") or {}).get("epoch"):
                assert heard["type"] in ("response", "event")
        except (BrokenPipeError, ConnectionResetError):
            pass
        client.close()
    gate.touch()
    assert run.wait(timeout=30).output == "third"
    assert server.status()["epoch"] == 1


@pytest.mark.parametrize("placement", ["thread"])
def test_nothing_is_heard_before_the_hello(server, connect):
    client = connect(hello=False)
    client.send(client.frame("server.status"))
    assert client.line() is None


def test_the_greeting_tells_whose_server_it_is(server, connect, placement):
    greeting = connect().greeting
    assert greeting["kind"] == ("kernel" if placement == "thread" else "server")
    assert greeting["pid"] == server.status()["pid"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("placement", ["thread"])
def test_another_user_is_not_heard(tmp_path, placement, monkeypatch):
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("PI_WORKFLOWS_HOME", str(home))
    try:
        with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement):
            where = socket_path(tmp_path / "s.sqlite", home)
            home.chmod(0o755)
            where.chmod(0o666)
            told = subprocess.run(
                [sys.executable, "-c", STRANGER, str(where)], capture_output=True, text=True, check=False, timeout=30
            )
            assert told.stdout == "connected\nb''\n", told.stderr
    finally:
        shutil.rmtree(home)


STRANGER = """
import os, socket, sys
os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
print("connected")
client.sendall(b'{"clientId":"x","kind":"test","pid":1,"schema":"pi-workflows.client.v1","type":"hello"}\\n')
try:
    print(client.recv(100))
except ConnectionResetError:
    print(b"")
"""


@pytest.mark.parametrize("placement", ["process"])
def test_who_reads_nothing_is_not_read_from_and_costs_little(server, connect):
    import psutil

    wf = pw.Workflow("large", start_at="make")
    wf.compute(lambda ctx: "x" * 3_000_000, name="make")
    run = server.run(wf).wait(timeout=30)
    digest = server.sql("SELECT hex(final_output_hash) d FROM runs WHERE run_id = ?", [run.id]).d[0].lower()
    process = psutil.Process(server.status()["pid"])
    before = process.memory_info().rss
    client = connect(timeout=0.5)
    sent = 0
    try:
        while sent < 5_000:
            client.send(client.frame("content.read", {"offset": 0, "sha256": digest}))
            sent += 1
    except TimeoutError:
        pass
    assert server.status()["epoch"] == 1, "the others are served"
    grown = process.memory_info().rss - before
    print(f"\n{sent:,} requests unread: {grown / 1e6:.0f} MB more")
    assert grown < 150e6
    client.socket.settimeout(20)
    for _ in range(40):
        assert len(client.line()["receipt"]["base64"]) > 600_000
    client.socket.shutdown(socket.SHUT_RDWR)


def test_values_of_every_shape_cross(server):
    shapes = [1e16, -1e21, 2**53 - 1, 1e-7, "\ud800 alone", {"\udfff": "𝄞", "10": 1, "9": 2, "": None}, [[[]]]]
    wf = pw.Workflow("same", start_at="same")
    wf.compute(lambda ctx: ctx.input, name="same")
    wf.checkpoint("look", summary="look")

    @wf.action(effect=pw.idempotent_effect("post", request=lambda ctx: ctx.outputs))
    def post(ctx):
        ctx.publish_update("progress", "overall", {"said": ctx.outputs["look"]})
        if ctx.effect.attempt_number == 1:
            import os

            os._exit(3)
        return [ctx.outputs["same"], ctx.outputs["look"]]

    wf.edge("same", "look")
    wf.edge("look", "post")
    run = server.run(wf, shapes).wait(timeout=30)
    run.answer(shapes)
    assert run.wait(timeout=30).output == [shapes, shapes]
    updates = server.sql("SELECT b.content FROM workflow_updates u JOIN blobs b ON b.blob_hash = u.data_hash")
    assert [canonical_json.decode(content) for content in updates.content] == [{"said": shapes}] * 2
