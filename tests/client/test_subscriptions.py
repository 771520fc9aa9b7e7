"""What a client follows: snapshots, changes from a revision on, and no more than it reads."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from tests.hostile.surroundings import until


def steps(count):
    """A run of so many steps."""
    wf = pw.Workflow("counts", start_at="tick", max_steps=count + 10)

    @wf.compute
    def tick(ctx):
        done = ctx.outputs.get("tick", {"done": 0})["done"] + 1
        return {"done": done, "go": "yes" if done < count else "no"}

    wf.compute(lambda ctx: "over", name="over")
    wf.edge("tick", switch="$.go", cases={"yes": "tick", "no": "over"})
    return wf


def test_a_run_is_followed_by_whole_views_with_revisions(server, connect, gated):
    run = server.run(gated)
    until(lambda: len(server.attempts()) == 1)
    client = connect()
    response = client.ask("subscribe", run_id=run.id)
    assert response["outcome"] == "accepted"
    first = client.event()
    assert (first["subject"], first["after"], first["targets"]) == (run.id, None, [])
    assert (first["view"]["status"], first["view"]["currentNode"]) == ("running", "first")
    assert first["revision"] == first["view"]["viewRevision"]
    gated.gate.touch()
    known = first["revision"]
    while True:
        event = client.event()
        assert event["after"] == known
        assert event["revision"] >= known
        assert set(event["targets"]) <= {"summary", "timeline", "graph", "replay", "inspector", "conversation"}
        assert event["targets"] or event["revision"] == known
        known = event["revision"]
        if event["view"]["status"] == "completed":
            break
    assert event["view"]["stepCount"] == 2
    assert client.ask("unsubscribe", run_id=run.id)["outcome"] == "accepted"


@pytest.mark.parametrize("placement", ["thread"])
def test_who_missed_a_revision_that_is_not_kept_gets_a_snapshot(server, connect):
    run = server.run(steps(500)).wait(timeout=60)
    until(lambda: server.runners().status.tolist() == ["exited"])  # which is a revision, too
    client = connect()

    def first_after(after):
        assert client.ask("subscribe", {"after": after, "subject": "run"}, run.id)["outcome"] == "accepted"
        return client.event()

    newest = first_after(None)["revision"]
    assert newest > 400
    retained = int(server.sql("SELECT retained_from_revision r FROM viewer_runs WHERE run_id = ?", [run.id]).r[0])
    assert newest - retained >= 255
    for after in (newest, newest - 1, newest - 255, retained - 1):
        event = first_after(after)
        assert (event["after"], event["revision"]) == (after, newest)
        assert bool(event["targets"]) == (after < newest)
    for after in (0, 1, retained - 2, newest + 1):
        event = first_after(after)
        assert (event["after"], event["revision"], event["targets"]) == (None, newest, [])
        assert event["view"]["status"] == "completed"
    assert client.ask("subscribe", {"after": -5, "subject": "run"}, run.id)["outcome"] == "rejected"


@pytest.mark.parametrize("placement", ["thread"])
def test_what_cannot_be_followed_is_told(server, connect):
    client = connect()
    assert client.ask("subscribe", run_id="no-such-run")["outcome"] == "notFound"
    response = client.ask("subscribe", {"subject": "session"})
    assert (response["outcome"], "session.wait" in response["error"]) == ("unavailable", True)
    assert client.ask("subscribe", {"subject": "weather"})["outcome"] == "rejected"
    assert client.ask("subscribe", {"subject": "run", "since": 3})["outcome"] == "rejected"
    with pytest.raises(pw.NotFoundError, match="no-such-run"):
        server._connection.subscribe("no-such-run", print) if server.placement != "thread" else server.get_run(
            "no-such-run"
        ).wait()


def test_the_list_of_runs_is_followed(server, connect, gated, tmp_path):
    old = server.run(steps(1)).wait(timeout=30)
    client, elsewhere = connect(), connect()
    assert client.ask("subscribe", {"project": str(tmp_path), "subject": "runs"})["outcome"] == "accepted"
    assert elsewhere.ask("subscribe", {"project": "/somewhere", "subject": "runs"})["outcome"] == "accepted"
    first = client.event()
    assert (first["subject"], first["after"], first["revision"]) == ("runs", None, 1)
    assert [row["runId"] for row in first["view"]["runs"]] == [old.id]
    run = server.run(gated)
    known, statuses = 1, []
    gated.gate.touch()
    while not statuses or statuses[-1] != "completed":
        event = client.event()
        assert (event["after"], event["revision"]) == (known, known + 1)
        known += 1
        rows = {row["runId"]: row["status"] for row in event["view"]["runs"]}
        assert set(rows) <= {old.id, run.id}
        statuses += [rows[run.id]] if run.id in rows else []
    assert elsewhere.event()["view"]["runs"] == []
    assert elsewhere.ask("unsubscribe", {"subject": "runs"})["outcome"] == "accepted"
    assert elsewhere.events == []


def test_a_client_that_reads_slowly_gets_the_newest_only(server, connect):
    wf = pw.Workflow("large", start_at="make")
    wf.compute(lambda ctx: "x" * 3_000_000, name="make")
    large = server.run(wf).wait(timeout=30)
    digest = server.sql("SELECT hex(final_output_hash) d FROM runs WHERE run_id = ?", [large.id]).d[0].lower()
    client, quick = connect(), connect()
    run = server.run(steps(2000))
    client.ask("subscribe", run_id=run.id)
    client.ask("subscribe", {"subject": "runs"})
    quick.ask("subscribe", run_id=run.id)
    for _ in range(20):
        client.send(client.frame("content.read", {"offset": 0, "sha256": digest}))
    quickly = 1
    while quick.event()["view"]["status"] != "completed":
        quickly += 1
    assert run.wait(timeout=60).output == "over"
    slowly, answers = [], 0
    while answers < 20 or not slowly or slowly[-1]["view"]["status"] != "completed":
        frame = client.line()
        if frame["type"] == "response":
            answers += 1
        elif frame["subject"] == run.id:
            slowly.append(frame)
    slowly = [event for event in client.events if event["subject"] == run.id] + slowly
    print(f"\n{quickly} views for who reads, {len(slowly)} for who does not")
    assert quickly > 5
    assert len(slowly) < max(8, quickly / 2)
    assert slowly[-1]["view"]["stepCount"] == 2001
