"""What a runner says, from its first word to its last."""

from __future__ import annotations

import os
import signal

import pytest

from pi_workflows_nb.wire.canonical_json import encode
from tests.runner.peer import Peer, chain, wait_for


def test_a_run_from_ready_to_exit(tmp_path):
    with Peer(tmp_path, chain("return ctx.input", "return [ctx.outputs['n0'], ctx.run_id]")) as peer:
        peer.state["input"] = {"a": 1}
        assert peer.run() == 0
    assert [message["kind"] for message in peer.messages] == [
        "runner.ready",
        "runner.progress",
        "node.started",
        "node.finished",
        "run.finished",
        "runner.exiting",
    ]
    first, both, last = peer.transitions()
    assert first["started"]["nodeId"] == "n0"
    assert (both["finished"]["nodeId"], both["started"]["nodeId"]) == ("n0", "n1")
    assert both["finished"]["output"] == {"inline": {"a": 1}}
    assert last["end"] == {
        "detail": None,
        "dueAt": None,
        "error": None,
        "output": {"inline": [{"a": 1}, "run-1"]},
        "pauseMs": None,
        "status": "completed",
    }
    assert peer.messages[-1]["payload"] == {"detail": None, "reason": "done"}
    assert len({message["messageId"] for message in peer.messages}) == len(peer.messages)


def test_resume_asks_for_the_state_and_goes_on_from_it(tmp_path):
    with Peer(tmp_path, chain("1 / 0", "return ctx.outputs['n0'] + 1")) as peer:
        step = {
            "attemptId": "a",
            "attemptNumber": 4,
            "error": None,
            "finishedAt": 2,
            "index": 0,
            "nodeId": "n0",
            "nodeType": "compute",
            "outcome": "ok",
            "output": 41,
            "startedAt": 1,
        }
        peer.state |= {"steps": [step], "attemptCounts": {"n0": 4, "n1": 2}}
        assert peer.run(command="resume") == 0
    assert peer.messages[1]["operation"] == "store.prepareRunResume"
    assert peer.transitions()[0]["started"]["number"] == 3
    assert peer.end()["output"] == {"inline": 42}


def test_a_continuation_begins_behind_the_steps_of_its_parent(tmp_path):
    source = chain("return {'ask': 1}", "return ctx.outputs", decorators={0: "wf.checkpoint"})
    with Peer(tmp_path, source) as peer:
        assert peer.run() == 0
    assert peer.end() == {
        "detail": "n0",
        "dueAt": None,
        "error": None,
        "output": {"inline": {"ask": 1}},
        "pauseMs": None,
        "status": "waiting",
    }
    started = {key: peer.transitions()[0]["started"][key] for key in ("attemptId", "nodeId", "nodeType", "startedAt")}
    step = started | {"outcome": "ok", "output": "yes", "error": None, "finishedAt": 2}
    state = peer.state | {"runId": "run-1", "steps": [step | {"index": 0, "attemptNumber": 1}]}
    with Peer(tmp_path, source, state=state) as peer:
        assert peer.run(command="continue") == 0
    assert peer.messages[1]["operation"] == "store.initializeRun"
    assert peer.end()["output"] == {"inline": {"n0": "yes"}}


def test_answers_may_come_in_any_pieces(tmp_path):
    with Peer(tmp_path, chain(*["return 1"] * 3), window=2) as peer:
        whole = peer.send

        def in_pieces(value):
            held, peer.socket = peer.socket, Recorder()
            whole(value)
            recorded, peer.socket = peer.socket.data, held
            for start in range(0, len(recorded), 7):
                peer.socket.sendall(recorded[start : start + 7])

        peer.send = in_pieces
        assert peer.run() == 0
    assert peer.end()["status"] == "completed"


class Recorder:
    data = b""

    def sendall(self, data):
        self.data += data


def test_an_action_reserves_and_settles_in_one_message_with_its_end(tmp_path):
    decorators = {0: "wf.action(effect=pw.idempotent_effect('x.y'))"}
    body = "ctx.effect.external_ref = 'ref'\nctx.publish_update('progress', 'all', {'n': 1})\nreturn 1"
    with Peer(tmp_path, chain(body, decorators=decorators)) as peer:
        assert peer.run() == 0
    assert [message["operation"] for message in peer.messages[2:]] == [
        "store.writeSnapshot",
        "store.reserveEffect",
        "store.publishUpdate",
        "store.writeSnapshot",
        "runner.exiting",
    ]
    reserve, update = peer.messages[3]["payload"], peer.messages[4]["payload"]
    attempt = peer.transitions()[0]["started"]["attemptId"]
    assert reserve == {
        "attemptId": attempt,
        "effectType": "x.y",
        "idempotencyKey": "run-1:x.y:n0:1",
        "recovery": "idempotent",
        "request": {"inline": {"input": None, "outputs": {}}},
    }
    assert update == {"attemptId": attempt, "data": {"inline": {"n": 1}}, "key": "all", "type": "progress"}
    finished = peer.transitions()[-1]["finished"]
    assert finished["effect"] == {"effectId": "effect-1", "externalRef": "ref", "outcome": "applied"}


def test_an_ambiguous_effect_ends_the_runner_without_a_call(tmp_path):
    decorators = {0: "wf.action(effect=pw.manual_effect('x.y'))"}
    body = f"open({str(tmp_path / 'called')!r}, 'w')"
    with Peer(tmp_path, chain(body, decorators=decorators)) as peer:
        peer.shake_hands()
        message = peer.serve(lambda message: message["operation"] == "store.reserveEffect")
        peer.answer(message, result={"attemptNumber": 1, "effectId": "effect-1", "result": None, "state": "ambiguous"})
        assert peer.receive() is None
        assert peer.exit_code() == 75
    assert not (tmp_path / "called").exists()


def test_a_conflict_of_an_effect_is_the_nodes_failure(tmp_path):
    decorators = {0: "wf.action(effect=pw.manual_effect('x.y'))"}
    with Peer(tmp_path, chain("return 1", decorators=decorators)) as peer:
        peer.shake_hands()
        message = peer.serve(lambda message: message["operation"] == "store.reserveEffect")
        peer.answer(message, "rejected", error="conflict: recorded with another request")
        peer.serve()
        assert peer.exit_code() == 0
    assert peer.end()["error"] == "EffectRequestConflictError: recorded with another request"


@pytest.mark.parametrize("outcome", ["rejected", "claimLost"])
def test_a_refusal_ends_the_runner_without_another_word(tmp_path, outcome):
    with Peer(tmp_path, chain("import time\ntime.sleep(60)")) as peer:
        peer.shake_hands()
        message = peer.serve(lambda message: message["kind"] == "node.started")
        peer.answer(message, outcome, error="no")
        assert peer.receive() is None
        assert peer.exit_code() == 75


def test_the_end_of_the_server_ends_the_runner_in_the_middle_of_its_node(tmp_path):
    mark = tmp_path / "there"
    with Peer(tmp_path, chain(f"open({str(mark)!r}, 'w')\nwhile True: pass")) as peer:
        peer.shake_hands()
        peer.answer(peer.serve(lambda message: message["kind"] == "node.started"))
        wait_for(mark.exists)
        peer.socket.close()
        assert peer.exit_code() == 74


def test_what_the_disk_did_not_take_is_sent_again_as_it_was(tmp_path):
    """The first refusal takes everything with it that was sent after."""
    with Peer(tmp_path, chain(*["return 1"] * 6), window=16) as peer:
        peer.shake_hands()
        peer.handle(peer.receive())
        first = [peer.receive() for _ in range(4)]
        for message in first:
            peer.answer(message, "rejected", error="unavailable: disk full")
        while (message := peer.receive()) != first[0]:
            first.append(message)
            peer.answer(message, "rejected", error="unavailable: an earlier proposal is not stored yet")
        again = len(peer.messages) - 1
        peer.handle(message)
        peer.serve()
        assert peer.exit_code() == 0
    assert peer.messages[again : again + len(first)] == first
    assert peer.end()["status"] == "completed"


def test_what_was_not_stored_is_sent_again_while_the_node_runs(tmp_path):
    mark = tmp_path / "go"
    body = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)\nreturn 1"
    with Peer(tmp_path, chain(body)) as peer:
        peer.shake_hands()
        message = peer.serve(lambda message: message["kind"] == "node.started")
        peer.answer(message, "rejected", error="unavailable: disk full")
        assert peer.receive() == message
        peer.handle(message)
        mark.touch()
        peer.serve()
        assert peer.exit_code() == 0


def test_a_source_that_changed_is_said_and_not_run(tmp_path):
    with Peer(tmp_path, chain("return 1")) as peer:
        peer.digest = "00" * 32
        assert peer.run() == 0
    assert [message["kind"] for message in peer.messages] == ["runner.ready", "runner.exiting"]
    assert peer.messages[-1]["payload"]["reason"] == "sourceChanged"


def test_a_source_that_cannot_be_loaded_is_said(tmp_path):
    with Peer(tmp_path, chain("return 1")) as peer:
        peer.frozen["text"] += "\nimport no_such_module_here\n"
        assert peer.run() == 0
    said = peer.messages[-1]["payload"]
    assert said["reason"] == "sourceChanged"
    assert "no_such_module_here" in said["detail"]


def test_errors_show_the_lines_of_the_source(tmp_path):
    with Peer(tmp_path, chain("x = {}\nreturn x['missing']")) as peer:
        assert peer.run() == 0
    error = peer.end()["error"]
    assert error.startswith("KeyError: 'missing'\n")
    assert "return x['missing']" in error
    assert error == peer.transitions()[-1]["finished"]["error"]


def test_text_without_meaning_in_utf8_is_mended(tmp_path):
    with Peer(tmp_path, chain(r"raise ValueError('\ud800 \x00')")) as peer:
        assert peer.run() == 0
    assert peer.end()["error"].startswith("ValueError: \ufffd \x00\n")


def test_a_node_that_does_not_stop_ends_its_process_once_its_end_is_stored(tmp_path):
    source = chain("import time\ntime.sleep(60)", "return 1", decorators={0: "wf.compute(timeout=0.1)"})
    source += "wf.switch('n0', '$result.outcome', {'timed_out': 'n1'})\n"
    with Peer(tmp_path, source) as peer:
        assert peer.run() == 0
    last = peer.transitions()[-1]
    assert last["abandoned"] is True
    assert (last["finished"]["outcome"], last["started"], last["end"]) == ("timed_out", None, None)
    assert peer.messages[-1]["payload"] == {"detail": None, "reason": "done"}


def test_sigterm_lets_the_code_stop_and_proposes_nothing(tmp_path):
    mark, stopped = tmp_path / "there", tmp_path / "stopped"
    body = f"open({str(mark)!r}, 'w')\nctx.cancelled.wait(30)\nopen({str(stopped)!r}, 'w')\nreturn 1"
    with Peer(tmp_path, chain(body)) as peer:
        peer.shake_hands()
        peer.answer(peer.serve(lambda message: message["kind"] == "node.started"))
        wait_for(mark.exists)
        os.kill(peer.pid, signal.SIGTERM)
        assert peer.receive() is None
        assert peer.exit_code() == 143
    assert stopped.exists()


def test_sigterm_does_not_wait_for_code_that_does_not_listen(tmp_path):
    mark = tmp_path / "there"
    with Peer(tmp_path, chain(f"open({str(mark)!r}, 'w')\nimport time\ntime.sleep(60)")) as peer:
        peer.shake_hands()
        peer.answer(peer.serve(lambda message: message["kind"] == "node.started"))
        wait_for(mark.exists)
        os.kill(peer.pid, signal.SIGTERM)
        assert peer.receive() is None
        assert peer.exit_code() == 143


def test_the_channel_is_out_of_reach_of_user_code(tmp_path):
    body = "import os\nos.closerange(3, 100)\nreturn len(os.read(0, 1))"
    with Peer(tmp_path, chain(body)) as peer:
        assert peer.run() == 0
    assert peer.end()["output"] == {"inline": 0}


def test_an_agent_travels_with_the_run(tmp_path):
    def agent(request):
        return {"route": request.choices[1]}

    decorators = {0: "wf.decision(choices=['a', 'b'])"}
    with Peer(tmp_path, chain("return 'which?'", decorators=decorators), agent=agent) as peer:
        assert peer.run() == 0
    assert peer.end()["output"] == {"inline": {"route": "b"}}


def test_a_server_that_says_nonsense_is_left(tmp_path):
    with Peer(tmp_path, chain("import time\ntime.sleep(60)")) as peer:
        peer.shake_hands()
        message = peer.serve(lambda message: message["kind"] == "node.started")
        peer.answer({**message, "messageId": "another"})
        assert peer.receive() is None
        assert peer.exit_code() == 76


def test_another_version_of_the_protocol_is_refused(tmp_path):
    with Peer(tmp_path, chain("return 1")) as peer:
        peer.send(peer.envelope(protocolVersion=2))
        assert peer.receive() is None
        assert peer.exit_code() == 1


def test_frames_are_canonical(tmp_path):
    with Peer(tmp_path, chain("return {'é': 1.0, '10': 1e21, '9': [], 'z': '\\u2028'}")) as peer:
        assert peer.run() == 0
    for message in peer.messages:  # `receive` has checked the bytes; this checks that nothing was lost
        assert encode(message)
    assert peer.end()["output"] == {"inline": {"é": 1, "10": 1e21, "9": [], "z": "\u2028"}}
