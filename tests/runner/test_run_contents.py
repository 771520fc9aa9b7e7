"""Values that do not fit into a frame."""

from __future__ import annotations

import base64

from tests.runner.peer import Peer, chain


def test_large_values_pass_in_both_directions(tmp_path):
    text = "é" * 1_500_000
    with Peer(tmp_path, chain("return ctx.input + '!'", "return len(ctx.outputs['n0'])")) as peer:
        peer.state["input"] = text
        assert peer.run() == 0
    assert any(message["operation"] == "content.read" for message in peer.messages)
    first = peer.transitions()[1]["finished"]["output"]
    assert peer.decoded(first) == text + "!"
    assert peer.end()["output"] == {"inline": 1_500_001}


def test_an_output_that_is_the_runs_own_travels_once(tmp_path):
    with Peer(tmp_path, chain("return 'x' * 600_000")) as peer:
        assert peer.run() == 0
    writes = [message["payload"] for message in peer.messages if message["operation"] == "content.write"]
    assert [part["offset"] for part in writes] == [0, 512 << 10]
    assert [len(base64.b64decode(part["base64"])) for part in writes] == [512 << 10, 600_002 - (512 << 10)]
    end = peer.transitions()[-1]
    assert end["finished"]["output"] == end["end"]["output"]
    assert peer.decoded(end["end"]["output"]) == "x" * 600_000


def test_a_large_source_is_fetched(tmp_path):
    source = chain("return 1") + f"# {'x' * 2_000_000}\n"
    with Peer(tmp_path, source) as peer:
        assert peer.run() == 0
    assert peer.end()["output"] == {"inline": 1}


def test_large_requests_and_many_large_values(tmp_path):
    decorators = {0: "wf.action(effect=pw.idempotent_effect('x', request={'all': 'r' * 300_000}))"}
    bodies = ["return [1] * 200_000", "return [len(ctx.outputs['n0'])] * 300_000"]
    with Peer(tmp_path, chain(*bodies, decorators=decorators)) as peer:
        assert peer.run() == 0
    reserve = next(message for message in peer.messages if message["operation"] == "store.reserveEffect")
    assert peer.decoded(reserve["payload"]["request"]) == {"all": "r" * 300_000}
    assert peer.decoded(peer.end()["output"]) == [200_000] * 300_000
