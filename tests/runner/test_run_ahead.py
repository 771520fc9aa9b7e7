"""How far a runner may be ahead of what is stored."""

from __future__ import annotations

import select

import pytest

from tests.runner.peer import Peer, chain


def unanswered(peer):
    """Every message that arrives while none is answered."""
    found = []
    while True:
        if b"\n" not in peer.rest and not select.select([peer.socket], [], [], 0.4)[0]:
            return found
        found.append(peer.receive())


@pytest.mark.parametrize(("window", "ahead"), [(1, 1), (4, 4), (16, 16)])
def test_compute_nodes_run_ahead_by_the_window(tmp_path, window, ahead):
    with Peer(tmp_path, chain(*["return 1"] * 40), window=window) as peer:
        peer.shake_hands()
        peer.handle(peer.receive())
        found = unanswered(peer)
        assert len(found) == ahead
        for message in found:
            peer.handle(message)
        peer.serve()
        assert peer.exit_code() == 0
    assert len(peer.transitions()) == 41


def test_nothing_but_compute_nodes_starts_before_everything_is_stored(tmp_path):
    mark = tmp_path / "called"
    decorators = {2: "wf.action(effect=pw.idempotent_effect('x'))"}
    bodies = ["return 1", "return 1", f"open({str(mark)!r}, 'w')", "return 1"]
    with Peer(tmp_path, chain(*bodies, decorators=decorators)) as peer:
        peer.shake_hands()
        peer.handle(peer.receive())
        found = unanswered(peer)
        assert [message["kind"] for message in found] == ["node.started", "node.finished", "node.finished"]
        for message in found:
            assert not mark.exists()
            peer.handle(message)
        reserve = peer.receive()
        assert reserve["operation"] == "store.reserveEffect"
        assert not mark.exists()
        peer.handle(reserve)
        peer.serve()
        assert peer.exit_code() == 0
    assert mark.exists()


def test_a_runner_does_not_run_ahead_of_an_old_message(tmp_path):
    """Not by its number but by its age: steps of 5 ms are held after the third."""
    with Peer(tmp_path, chain(*["import time\ntime.sleep(0.005)"] * 30)) as peer:
        peer.shake_hands()
        peer.handle(peer.receive())
        found = unanswered(peer)
        assert 2 <= len(found) <= 4
        for message in found:
            peer.handle(message)
        peer.serve()
        assert peer.exit_code() == 0
