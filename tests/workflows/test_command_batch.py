"""Batches of real commands: order, outcomes, limits, and what a cancellation leaves."""

from __future__ import annotations

import threading
import time

import pytest

import pi_workflows_nb as pw
from tests.workflows.test_shell import lives


def sh(name, line, **more):
    return {"id": name, "command": "sh", "args": ["-c", line], **more}


def test_results_stand_in_the_order_of_the_items_whatever_comes_first():
    settled = []
    results = pw.run_command_batch(
        [sh("slow", "sleep 0.3; echo slow"), sh("fast", "echo fast"), sh("bad", "echo no >&2; exit 3")],
        on_item_settled=settled.append,
    )
    assert [result["id"] for result in results] == ["slow", "fast", "bad"]
    assert [result["outcome"] for result in results] == ["succeeded", "succeeded", "failed"]
    assert [result["stdout"] for result in results] == ["slow\n", "fast\n", ""]
    assert (results[2]["exitCode"], results[2]["stderr"]) == (3, "no\n")
    assert "ended with exit code 3" in results[2]["error"]
    assert results[0]["error"] is None
    assert settled[-1] is results[0]
    assert {id(result) for result in settled} == {id(result) for result in results}


def test_so_many_at_a_time(tmp_path):
    """Each command counts those that stand in the folder beside it."""
    line = f"touch {tmp_path}/$$; sleep 0.1; ls {tmp_path} | wc -l; rm {tmp_path}/$$"
    results = pw.run_command_batch([sh(str(number), line) for number in range(9)], 3)
    assert max(int(result["stdout"]) for result in results) <= 3


def test_time_output_and_errors_are_bounded():
    late, long, loud, missing = pw.run_command_batch(
        [
            sh("late", "sleep 30", timeout=0.1),
            sh("long", "printf 0123456789", max_output_chars=4),
            sh("loud", "head -c 9000 /dev/zero | tr '\\0' x >&2; exit 1"),
            {"id": "missing", "command": "no-such-program", "cwd": "/"},
        ]
    )
    assert (late["outcome"], late["exitCode"]) == ("timedOut", None)
    assert (long["stdout"], long["stdoutTruncated"], long["outcome"]) == ("0123", True, "succeeded")
    assert (loud["outcome"], len(loud["error"]), len(loud["stderr"])) == ("failed", 2000, 9000)
    assert (missing["outcome"], missing["durationMs"]) == ("failed", 0)
    assert "there is no program" in missing["error"]


def test_a_cancellation_ends_what_runs_and_starts_nothing_more(tmp_path):
    cancelled = threading.Event()
    line = f"sleep 60 & echo $! > {tmp_path}/pid; touch {tmp_path}/first; wait"
    later = sh("later", f"touch {tmp_path}/later")

    def cancel():
        while not (tmp_path / "first").exists():
            time.sleep(0.01)
        cancelled.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    results = pw.run_command_batch([sh("running", line), later], 1, cancelled=cancelled)
    thread.join()
    assert [result["outcome"] for result in results] == ["cancelled", "cancelled"]
    assert not (tmp_path / "later").exists()
    assert not lives(int((tmp_path / "pid").read_text()))


def test_an_error_of_the_callback_stops_the_batch(tmp_path):
    def refuse(result):
        raise KeyError(result["id"])

    with pytest.raises(KeyError, match="quick"):
        pw.run_command_batch([sh("quick", "true"), sh("b", f"sleep 60; touch {tmp_path}/b")], on_item_settled=refuse)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([sh(str(number), "true") for number in range(65)], "65 items; there may be 64"),
        (["ls"], "item 0 is 'ls'; give a dict"),
        ([{"command": "ls"}], "item 0 has id=None"),
        ([sh("-a", "true")], "item 0 has id='-a'"),
        ([sh("a", "true"), sh("a", "true")], "two items have the id 'a'"),
        ([sh("a", "true", shell=True)], "the unknown key 'shell'"),
        ([sh("a", "true", allow_nonzero_exit=True)], "the unknown key 'allow_nonzero_exit'"),
        ([sh("a", "true", cwd="here")], "item 'a': cwd='here'; give an absolute path"),
        ([sh("a", "true", timeout=3601)], "item 'a': timeout=3601"),
        ([sh("a", "true", timeout=None)], "item 'a': timeout=None"),
        ([sh("a", "true", max_output_chars=1_000_001)], "1,000,000 at most"),
        ([{"id": "a", "command": ""}], "item 'a': command=''"),
    ],
)
def test_what_is_no_batch_is_refused_before_anything_runs(items, said):
    with pytest.raises(pw.WorkflowDefinitionError) as caught:
        pw.run_command_batch(items)
    assert said in str(caught.value)


@pytest.mark.parametrize("most", [0, 9, True, "2"])
def test_eight_at_a_time_are_the_most(most):
    with pytest.raises(pw.WorkflowDefinitionError, match="from 1 to 8"):
        pw.run_command_batch([], most)


def test_an_action_runs_a_batch_and_tells_how_far_it_is():
    wf = pw.Workflow("batch", start_at="count")

    @wf.action(effect=pw.idempotent_effect("files.count"))
    def count(ctx):
        done = []

        def settled(result):
            done.append(result["id"])
            ctx.publish_update(
                "progress",
                "batch",
                {"schema": pw.PROGRESS, "status": "running", "completed": len(done), "total": 2, "unit": "commands"},
            )

        found = pw.run_command_batch(
            [sh("a", "echo 1"), sh("b", "echo 2")], on_item_settled=settled, cancelled=ctx.cancelled
        )
        return [result["stdout"] for result in found]

    store = pw.LocalStore()
    assert wf.run_here(store=store).output == ["1\n", "2\n"]
    assert [data["completed"] for _, _, _, data in store.updates] == [1, 2]
