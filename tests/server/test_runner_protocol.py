"""What a runner may say, and what becomes of one that says something else."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.wire.runner_messages import KINDS
from tests.server import talks

LATER = (
    "interaction.accept",
    "interaction.reject",
    "notification.request",
    "presentation.request",
    "store.ensureSettingsScope",
    "store.getSettingsScopeAtChange",
    "store.readResolvedHumanDecision",
)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "marks"
    made.mkdir()
    return made


@pytest.fixture
def server(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path) as served:
        yield served


def one(server, function, **options):
    """A run of one compute node, started."""
    wf = pw.Workflow("one", start_at="node")
    wf.compute(function, name="node")
    return server.run(wf, **options)


def rows(server, query, *parameters):
    with closing(open_read_only(server.database, live=True)) as connection:
        return connection.execute(query, parameters).fetchall()


def ends(server):
    """How the runners ended, oldest first, once all have."""
    until = time.monotonic() + 10
    while not {"starting", "running"}.isdisjoint(found := list(server.runners().status)):
        assert time.monotonic() < until, "a runner did not end"
        time.sleep(0.01)
    return found


def test_what_comes_later_is_rejected_in_one_sentence_and_the_run_goes_on(server):
    kinds = {operation: min(KINDS[operation]) for operation in LATER}

    def node(ctx):
        talk = talks.Talk()
        return [talk.ask(operation, {"any": "thing"}, kinds[operation]) for operation in LATER]

    heard = one(server, node).wait(timeout=30).output
    assert {answer["outcome"] for answer in heard} == {"rejected"}
    assert [answer["error"] for answer in heard] == [f"{name} is not served by this version" for name in LATER]
    assert ends(server) == ["exited"]


def test_the_same_message_gets_the_same_answer_and_is_done_once(server):
    def node(ctx):
        talk = talks.Talk()
        asked = [
            talk.update(ctx.attempt_id, 1),
            talk.message(
                "store.reserveEffect",
                {
                    "attemptId": ctx.attempt_id,
                    "effectType": "t.x",
                    "idempotencyKey": "k",
                    "recovery": "manual",
                    "request": {"inline": {}},
                },
                "effect.reserve",
                attemptId=ctx.attempt_id,
                expectedRevision=talk.store._revision + 1,
            ),
            talk.message("interaction.accept", {}, "interaction.accepted"),
        ]
        heard = []
        for message in asked:
            frame = talks.encode(message) + b"\n"
            talk.say(frame + frame)
            heard.append([talk.hear(), talk.hear()])
        talk.store._revision += 1
        talk.store.settle_effect(heard[1][0]["result"]["inline"]["effectId"], "applied")
        return heard

    run = one(server, node).wait(timeout=30)
    for first, again in run.output:
        assert again == first | {"outcome": "adopted" if first["outcome"] == "accepted" else "rejected"}
    assert [first["outcome"] for first, _ in run.output] == ["accepted", "accepted", "rejected"]
    assert rows(server, "SELECT count(*) FROM workflow_updates") == [(1,)]
    assert rows(server, "SELECT attempt_count FROM effects") == [(1,)]


def test_a_transition_that_is_said_twice_is_adopted(server):
    def node(ctx):
        talk = talks.Talk()
        channel, transport = talk.transport._channel, talk.transport

        class Twice:
            def sendall(self, frame):
                channel.sendall(frame)
                if b'"store.writeSnapshot"' in frame and b'"node.finished"' in frame:
                    channel.sendall(frame)
                    heard.append(transport.receive_line())

            def __getattr__(self, name):
                return getattr(channel, name)

        heard = ctx.input if isinstance(ctx.input, list) else []
        transport._channel = Twice()
        return 1

    wf = pw.Workflow("two", start_at="a")
    wf.compute(node, name="a")
    wf.compute(lambda ctx: ctx.outputs["a"] + 1, name="b")
    wf.edge("a", "b")
    run = server.run(wf).wait(timeout=30)
    assert run.output == 2
    assert len(run.steps()) == 2


def test_the_same_id_with_other_content_stops_the_runner(server, folder):
    def node(ctx):
        if not talks.first_time(folder, "same id"):
            return "again"
        talk = talks.Talk()
        message = talk.update(ctx.attempt_id, 1)
        talk.say(talks.encode(message) + b"\n")
        talk.hear()
        message["payload"]["key"] = "other"
        talk.say(talks.encode(message) + b"\n")
        return talks.fall_silent()

    run = one(server, node).wait(timeout=30)
    assert run.output == "again"
    assert ends(server) == ["crashed", "exited"]
    assert rows(server, "SELECT count(*) FROM workflow_updates") == [(1,)]


def test_receipts_go_with_their_runner(server):
    def node(ctx):
        talks.Talk().store.publish_update(ctx.attempt_id, "t", "k", b"{}")
        return 1

    one(server, node).wait(timeout=30)
    assert ends(server) == ["exited"]
    assert rows(server, "SELECT count(*) FROM worker_messages") == [(0,)]


def test_a_wrong_revision_is_rejected_with_the_present_one(server, folder):
    said = str(folder / "said")

    def node(ctx):
        talk = talks.Talk()
        if not talks.first_time(folder, "revision"):
            return "again"
        message = talk.update(ctx.attempt_id, 1)
        present, message["expectedRevision"] = message["expectedRevision"], 1
        talk.say(talks.encode(message) + b"\n")
        with open(said, "w") as file:
            json.dump([present, talk.hear()], file)
        return talks.fall_silent()

    assert one(server, node).wait(timeout=30).output == "again"
    present, answer = json.loads((folder / "said").read_text())
    assert (answer["outcome"], answer["revision"]) == ("rejected", present)
    assert ends(server) == ["crashed", "exited"]


def test_the_state_of_another_run_of_the_chain_can_be_read(server, tmp_path):
    wf = pw.Workflow("chained", start_at="ask")
    wf.checkpoint(lambda ctx: {"question": ctx.input}, name="ask")

    def look(ctx):
        from pi_workflows_nb.wire.errors import NotFoundError

        store = talks.Talk().store
        with open(parent_file) as file:
            state = store.read_run_state(file.read())
        try:
            store.read_run_state(ctx.input["stranger"])
        except NotFoundError as error:
            refused = str(error)
        return [state["runId"], len(state["steps"]), refused, store.read_run_state("run-nobody")]

    parent_file = str(tmp_path / "parent")
    wf.compute(look, name="look")
    wf.edge("ask", "look")
    stranger = one(server, lambda ctx: 1)
    stranger.wait(timeout=30)
    run = server.run(wf, {"stranger": stranger.id})
    run.wait(timeout=30)
    with open(parent_file, "w") as file:
        file.write(run.id)
    run.answer("yes")
    output = run.wait(timeout=30).output
    first, steps, refused, nobody = output
    assert (first, steps, nobody) == (run.id, 1, None)
    assert "is not of the chain" in refused


def test_an_effect_can_be_settled_alone_once_and_by_its_own_run(server):
    def node(ctx):
        from pi_workflows_nb.wire.errors import ConflictError

        store = talks.Talk().store
        mine = store.reserve_effect(ctx.attempt_id, "t.x", "k", "manual", b"{}").effect_id
        if ctx.input is None:
            store.settle_effect(mine, "applied", result=b'{"made":1}', external_ref="ref")
        refused = []
        for effect in [mine] if ctx.input is None else [ctx.input]:
            try:
                store.settle_effect(effect, "rejected", error="no")
            except ConflictError as error:
                refused.append(str(error))
        if ctx.input is not None:
            store.settle_effect(mine, "rejected", error="never happened")
        return [mine, refused]

    effect, refused = one(server, node).wait(timeout=30).output
    assert len(refused) == 1
    stored = (
        "SELECT e.status, b.content, e.external_ref FROM effects e LEFT JOIN blobs b ON b.blob_hash = e.result_hash"
    )
    assert rows(server, stored) == [("applied", b'{"made":1}', "ref")]
    other, refused = one(server, node, input=effect).wait(timeout=30).output
    assert len(refused) == 1
    assert rows(server, stored + " WHERE effect_id = ?", other) == [("rejected", None, None)]


def test_a_bad_frame_stops_its_runner_alone(server, folder):
    stop = folder / "stop"

    def wait(ctx):
        import time

        while not stop.exists():
            time.sleep(0.02)
        return "undisturbed"

    def node(ctx):
        if not talks.first_time(folder, f"bad {ctx.input}"):
            return "went on"
        talk = talks.Talk()
        talk.say(talks.bad_frames(talk, ctx.attempt_id)[ctx.input] + b"\n")
        return talks.fall_silent()

    bystander = one(server, wait)
    runs = {name: one(server, node, input=name) for name in talks.NAMES}
    for name, run in runs.items():
        assert run.wait(timeout=60).output == "went on", name
        said = rows(
            server,
            "SELECT w.status, b.content FROM run_workers w LEFT JOIN blobs b ON b.blob_hash = w.diagnostic_hash"
            " WHERE run_id = ? ORDER BY w.generation",
            run.id,
        )
        assert said[0][0] == "crashed", name
        assert said[0][1].startswith(b"protocol: "), name
        assert len(said[0][1]) < 2000, name
    stop.touch()
    assert bystander.wait(timeout=30).output == "undisturbed"
    assert len(rows(server, "SELECT 1 FROM run_workers WHERE run_id = ?", bystander.id)) == 1


def test_the_state_is_given_to_a_runner_once(server, folder):
    def node(ctx):
        if not talks.first_time(folder, "state"):
            return "again"
        talks.Talk().ask("store.initializeRun", {})
        return talks.fall_silent()

    assert one(server, node).wait(timeout=30).output == "again"
    assert ends(server) == ["crashed", "exited"]
