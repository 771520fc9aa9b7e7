"""What nodes print, by attempt."""

from __future__ import annotations

from pathlib import Path

from tests.runner.peer import Peer, chain


def logs(peer):
    """What each node printed, by its name; files of attempts alone."""
    names = {t["started"]["attemptId"]: t["started"]["nodeId"] for t in peer.transitions() if t["started"]}
    return {names[path.stem]: path.read_text() for path in peer.folder.glob("*.log") if path.stem in names}


def test_each_attempt_has_its_own_and_silence_leaves_no_file(tmp_path):
    bodies = [
        "print('one é')",
        "return 2",
        "import os, sys\nos.write(2, b'raw ')\nprint('three', end='', file=sys.stderr)",
        "import subprocess\nsubprocess.run(['echo', 'child'])\nimport logging\nlogging.warning('warned')",
    ]
    with Peer(tmp_path, chain(*bodies)) as peer:
        assert peer.run() == 0
    assert logs(peer) == {"n0": "one é\n", "n2": "raw three", "n3": "child\nWARNING:root:warned\n"}
    assert (tmp_path / "epoch.log").read_text() == ""


def test_output_is_there_while_the_node_runs(tmp_path):
    body = "print('early')\nimport pathlib\nreturn pathlib.Path(ctx.input).read_text()"
    with Peer(tmp_path, chain(body)) as peer:
        peer.state["input"] = str(tmp_path / "epoch.log")
        assert peer.run() == 0
    assert peer.end()["output"] == {"inline": "early\n"}


def test_too_much_is_cut_clearly(tmp_path):
    bodies = ["for _ in range(110):\n    print('x' * 100_000)", "print('next')"]
    with Peer(tmp_path, chain(*bodies)) as peer:
        assert peer.run() == 0
    found = logs(peer)
    assert found["n1"] == "next\n"
    assert len(found["n0"]) < (10 << 20) + 200
    assert found["n0"].endswith("x\n[the output of this attempt was cut here: it is longer than 10 MiB]\n")


def test_a_log_that_grows_while_nothing_else_happens_is_cut_too(tmp_path):
    mark = tmp_path / "go"
    body = f"""
import os, time
for _ in range(200): print('y' * 100_000)
while os.path.getsize({str(tmp_path / "epoch.log")!r}) > 11 << 20: time.sleep(0.05)
print('lost')
"""
    with Peer(tmp_path, chain(body)) as peer:
        assert peer.run() == 0
    text = logs(peer)["n0"]
    assert "lost" not in text
    assert text.count("was cut here") == 1
    assert not Path(mark).exists()


def test_user_code_may_close_or_replace_the_streams(tmp_path):
    bodies = [
        "import sys\nprint('first')\nsys.stdout = sys.stderr = None",
        "import sys\nsys.__stdout__.close()",
        "return 3",
    ]
    with Peer(tmp_path, chain(*bodies)) as peer:
        assert peer.run() == 0
    assert peer.end()["status"] == "completed"


def test_a_crash_of_the_interpreter_leaves_its_stack(tmp_path):
    with Peer(tmp_path, chain("import ctypes\nctypes.string_at(0)")) as peer:
        peer.shake_hands()
        peer.serve()
        assert peer.exit_code() == -11
    assert "Segmentation fault" in (tmp_path / "epoch.log").read_text()
