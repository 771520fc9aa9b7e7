"""Updates from a node to the frames: limits that hold exactly, nothing lost, progress and estimates that agree."""

from __future__ import annotations

import itertools
import os
import signal
import time

import numpy as np
import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import UpdateError

TRACKS = 8


def flood(ctx):
    """Publishes from eight tracks by a clock of its own, and gives what was refused."""
    import random

    from pi_workflows_nb.workflows import updates

    chance, clock, refused = random.Random(ctx.input["seed"]), [time.monotonic()], []
    updates.monotonic = lambda: clock[0]
    done = [0] * TRACKS
    for number in range(ctx.input["count"]):
        clock[0] += chance.choice((0, 0.03125, 0.03125, 0.0625))
        track = chance.randrange(TRACKS)
        done[track] += chance.randrange(4)
        data = {"schema": pw.PROGRESS, "status": "running", "completed": done[track], "total": 10**6, "unit": "rows"}
        try:
            ctx.publish_update("progress", f"track-{track}", data)
        except UpdateError:
            refused.append(number)
    return refused


def accepted_by_hand(seed, count):
    """The same updates against a bucket in whole 1/32 of a second, which is 20/32 of an update."""
    import random

    chance, tokens, accepted, done = random.Random(seed), 100 * 32, [], [0] * TRACKS
    for number in range(count):
        passed = chance.choice((0, 0.03125, 0.03125, 0.0625))
        track = chance.randrange(TRACKS)
        done[track] += chance.randrange(4)
        tokens = min(100 * 32, tokens + round(passed * 32) * 20)
        if tokens >= 32:
            tokens -= 32
            accepted.append((number, f"track-{track}", done[track]))
    return accepted


@pytest.mark.parametrize("placement", ["thread"])
def test_of_many_updates_exactly_what_the_limits_allow_is_kept_and_all_of_it(server, long_form):
    count = 20_000 if long_form else 1_500
    wf = pw.Workflow("flood", start_at="node")
    wf.action(flood, name="node", effect=pw.idempotent_effect("x"), timeout=None)
    run = server.run(wf, {"seed": 7, "count": count}).wait(timeout=600)
    accepted = accepted_by_hand(7, count)
    assert run.output == sorted(set(range(count)) - {number for number, _, _ in accepted})
    assert 0 < len(run.output) < count
    frame = run.updates(payloads=True)
    assert list(zip(frame["key"], (data["completed"] for data in frame["data"]), strict=True)) == [
        (key, done) for _, key, done in accepted
    ]
    assert frame["current"].sum() == TRACKS
    assert frame["update_seq"].tolist() == list(range(1, len(accepted) + 1))
    moment = frame["recorded_at"].max()
    progress = run.progress(now=moment).reset_index()
    assert sorted(progress["key"]) == [f"track-{track}" for track in range(TRACKS)]
    assert set(progress["eta_unavailable"].dropna()) == {"its node has ended"}
    for row in progress.itertuples():
        mine = frame[frame["key"] == row.key]
        assert row.completed == mine["data"].iloc[-1]["completed"]
        assert row.rate == pytest.approx(rate_by_hand(mine), rel=1e-9)


def rate_by_hand(mine):
    times = mine["recorded_at"].astype("int64").to_numpy()
    counts = np.array([data["completed"] for data in mine["data"]])
    corners = [(times[0], counts[0])]
    for moment, count in zip(times, counts, strict=True):
        if count > corners[-1][1] and moment > corners[-1][0]:
            corners.append((moment, count))
    rates = [1000 * (after[1] - before[1]) / (after[0] - before[0]) for before, after in itertools.pairwise(corners)]
    return np.median(rates[-8:])


def test_a_track_is_seen_with_its_estimate_while_it_goes_on_and_after_it_has_ended(server, tmp_path):
    gate = tmp_path / "gate"

    def node(ctx):
        from pi_workflows_nb.workflows import tracking

        tracking.EVERY_SECONDS = 0
        for row in ctx.track(range(10), label="The rows"):
            while row == 4 and not gate.exists():
                time.sleep(0.01)
            time.sleep(0.02)

    wf = pw.Workflow("tracks", start_at="node")
    wf.action(node, name="node", effect=pw.idempotent_effect("x"))
    run = server.run(wf)
    give_up = time.monotonic() + 60
    while (frame := run.progress()).empty or frame["completed"].iloc[0] < 4:
        assert time.monotonic() < give_up, frame
        time.sleep(0.02)
    row = run.progress(now=frame["updated_at"].iloc[0]).iloc[0]
    assert (row["label"], row["status"], row["total"], row["unit"]) == ("The rows", "running", 10, "rows")
    assert row["eta_source"] == "measured"
    assert row["eta_earliest"] <= row["eta"] <= row["eta_latest"]
    gate.touch()
    run.wait(timeout=60)
    row = run.progress().reset_index().iloc[0]
    assert (row["run_id"], row["type"], row["key"]) == (run.id, "progress", "The-rows")
    assert (row["status"], row["completed"], row["eta_unavailable"]) == ("completed", 10, "it is completed")
    assert len(server.progress()) == 1
    assert server.progress(node="other").empty


def test_the_limits_of_a_run_outlive_its_runner(server, tmp_path):
    marker = tmp_path / "killed"

    def node(ctx):
        if not marker.exists():
            for number in range(90):
                ctx.publish_update("a", f"key-{number}", {})
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        from pi_workflows_nb.workflows import updates

        start = time.monotonic()
        updates.monotonic = lambda: start
        limits = ctx.publish_update.__self__._publish.__self__._limits
        left = limits._tokens
        for number in range(int(left)):
            ctx.publish_update("b", f"key-{number}", {})
        try:
            ctx.publish_update("b", "one-too-many", {})
        except UpdateError as error:
            return [left, len(limits._pairs), str(error)]

    wf = pw.Workflow("killed", start_at="node")
    wf.action(node, name="node", effect=pw.idempotent_effect("x"))
    run = server.run(wf).wait(timeout=60)
    left, pairs, error = run.output
    assert left < 100
    assert pairs == 90 + int(left)
    assert "too many updates" in error
    assert len(run.updates()) == pairs


def test_a_shell_node_publishes_what_its_command_prints(server):
    def parse(line):
        done = int(line.split("/")[0])
        status = "completed" if done == 3 else "running"
        return "progress", "files", {
            "schema": pw.PROGRESS, "status": status, "completed": done, "total": 3, "unit": "files",
        }  # fmt: skip

    wf = pw.Workflow("copies", start_at="copy")
    command = {"command": "sh", "args": ["-c", "for n in 1 2 3; do echo $n/3; done"]}
    wf.shell("copy", command, effect=pw.manual_effect("copy"), updates=pw.shell_updates(parse))
    run = server.run(wf).wait(timeout=60)
    assert run.output["stdout"] == "1/3\n2/3\n3/3\n"
    assert [data["completed"] for data in run.updates(payloads=True)["data"]] == [1, 2, 3]
