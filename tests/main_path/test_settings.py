"""Settings that change while a run goes on, and prompts for after it: from a cell to the rows."""

from __future__ import annotations

import json
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import ConflictError, NotFoundError, SettingsError, WorkflowInputError

OPEN = pw.allow_settings_path("", read=["human"], add=["human"], replace=["human"], remove=["human"])


def until(true, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.02)
    return found


def seen(ctx):
    return [ctx.settings, ctx.settings_change_number]


def two_looks(gate, settings, kind="compute"):
    """Looks at the settings, waits at the gate, and looks again."""
    wf = pw.Workflow("looks", start_at="first", settings=settings)
    wf.compute(seen, name="first")

    def hold(ctx):
        (gate.parent / f"in{ctx.settings_change_number}").touch()
        while not gate.exists():
            time.sleep(0.01)
        return seen(ctx)

    getattr(wf, kind)(hold, name="hold")
    wf.compute(lambda ctx: [ctx.outputs["first"], ctx.outputs["hold"], seen(ctx)], name="last")
    wf.edge("first", "hold")
    wf.edge("hold", "last")
    return wf


def started(server, gate, settings, given=None, **more):
    run = server.run(two_looks(gate, settings, **more), given)
    until((gate.parent / "in0").exists)
    return run


@pytest.fixture
def gate(tmp_path):
    return tmp_path / "gate"


def replace(path, value):
    return {"op": "replace", "path": path, "value": value}


def test_a_change_reaches_later_attempts_only_and_all_of_it_is_on_record(server, rows, gate):
    run = started(server, gate, pw.workflow_settings(initial=lambda given: {"speed": given}, paths=[OPEN]), 3)
    assert run.change_settings([replace("/speed", 5)]) == 1
    assert run.change_settings([{"op": "add", "path": "/more", "value": [1]}], expected=1) == 2
    gate.touch()
    assert run.wait(timeout=60).output == [[{"speed": 3}, 0], [{"speed": 3}, 0], [{"more": [1], "speed": 5}, 2]]
    changes = rows(
        "SELECT change_number, actor_type, CAST(b.content AS TEXT) FROM workflow_setting_changes c"
        " JOIN blobs b ON b.blob_hash = c.after_hash ORDER BY 1"
    )
    assert [tuple(row) for row in changes] == [
        (1, "human", '{"speed":5}'), (2, "human", '{"more":[1],"speed":5}'),
    ]  # fmt: skip
    attempts = rows(
        "SELECT node_id, settings_scope_id, settings_change_number, CAST(b.content AS TEXT) FROM node_attempts"
        " JOIN blobs b ON b.blob_hash = settings_hash ORDER BY started_at, node_attempts.rowid"
    )
    scope = f"{run.id}:$root:1"
    assert [tuple(row) for row in attempts] == [
        ("first", scope, 0, '{"speed":3}'), ("hold", scope, 0, '{"speed":3}'),
        ("last", scope, 2, '{"more":[1],"speed":5}'),
    ]  # fmt: skip
    events = rows(
        "SELECT event_type, actor_type FROM events JOIN resources USING (resource_id) WHERE resource_type = 'settings'"
    )
    assert [tuple(row) for row in events] == [("settings.changed", "human")] * 2


def test_what_is_refused_changes_nothing(server, rows, gate):
    def parse(value):
        return {"speed": int(value["speed"])}

    def steady(before, after):
        if after["speed"] > 2 * before["speed"]:
            raise ValueError("too fast at once")

    paths = [pw.allow_settings_path("/speed", replace=["human"], read=["human"])]
    declared = pw.workflow_settings(initial={"speed": "4"}, parse=parse, paths=paths, validate_change=steady)
    run = started(server, gate, declared)
    with pytest.raises(SettingsError, match="no rule of the workflow opens '/other'"):
        run.change_settings([{"op": "add", "path": "/other", "value": 1}])
    with pytest.raises(SettingsError, match="human may not remove '/speed'"):
        run.change_settings([{"op": "remove", "path": "/speed"}])
    with pytest.raises(SettingsError, match="lacks value"):
        run.change_settings([{"op": "replace", "path": "/speed"}])
    with pytest.raises(WorkflowInputError, match="too fast at once"):
        run.change_settings([replace("/speed", 100)])
    with pytest.raises(WorkflowInputError, match="invalid literal"):
        run.change_settings([replace("/speed", "fast")])
    with pytest.raises(ConflictError, match="at change number 0, not 7"):
        run.change_settings([replace("/speed", 5)], expected=7)
    with pytest.raises(NotFoundError):
        run.change_settings([replace("/speed", 5)], mount="nobody")
    assert [tuple(row) for row in rows("SELECT count(*) FROM workflow_setting_changes")] == [(0,)]
    assert run.change_settings([replace("/speed", "8")]) == 1
    gate.touch()
    assert run.wait(timeout=60).output[2] == [{"speed": 8}, 1]
    with pytest.raises(ConflictError, match="its settings stand"):
        run.change_settings([replace("/speed", 9)])


def test_a_run_without_settings_says_so(server):
    wf = pw.Workflow("none", start_at="a")
    wf.checkpoint("a")
    run = server.run(wf)
    with pytest.raises(NotFoundError, match="declares none"):
        run.change_settings([replace("/x", 1)])


def test_a_route_is_taken_on_the_newest_settings(server, gate):
    run = started(server, gate, pw.workflow_settings(initial={"way": "a"}, paths=[OPEN]), kind="settings_route")
    run.change_settings([replace("/way", "b")])
    gate.touch()
    assert run.wait(timeout=60).output[1] == [{"way": "b"}, 1]
    attempts = server.attempts(run=run.id)
    assert list(attempts[attempts.node_id == "hold"].status) == ["failed", "completed"]
    assert list(server.steps(run=run.id).node_id) == ["first", "hold", "last"]


def mounted(gate):
    child = two_looks(gate, pw.workflow_settings(initial=lambda given: {"of": given}, paths=[OPEN]))
    child.exit("done", "last")
    wf = pw.Workflow("holds", start_at="one", settings=pw.workflow_settings(initial={"root": 1}, paths=[OPEN]))
    wf.include("one", child, input="x")
    wf.include("two", child, input="y", settings=lambda ctx: {"given": ctx.settings})
    wf.checkpoint("gate")
    wf.compute(lambda ctx: [ctx.outputs["one"]["output"], ctx.outputs["two"]["output"], seen(ctx)], name="last")
    wf.edge("one.done", "two")
    wf.edge("two.done", "gate")
    wf.edge("gate", "last")
    return wf


def test_a_mount_has_a_scope_of_its_own_and_a_continuation_goes_on_with_all(server, rows, gate):
    run = server.run(mounted(gate))
    until((gate.parent / "in0").exists)
    assert run.change_settings([replace("/of", "z")], mount="one") == 1
    assert run.change_settings([replace("/root", 2)]) == 1
    gate.touch()
    until(lambda: run.status == "waiting")
    first = run.id
    run.answer("go")
    one, two, root = run.wait(timeout=60).output
    assert one == [[{"of": "x"}, 0], [{"of": "x"}, 0], [{"of": "z"}, 1]]
    assert two == [[{"given": {"root": 2}}, 0]] * 3
    assert root == [{"root": 2}, 1]
    scopes = rows("SELECT scope_id, active_run_id FROM workflow_settings ORDER BY created_at, scope_id")
    assert {row[0] for row in scopes} == {f"{first}:$root:1", f"{first}:one:1", f"{first}:two:1"}
    assert {row[1] for row in scopes} == {run.chain[-1]}


def test_a_restart_begins_with_the_settings_that_the_run_began_with(server, gate):
    wf = pw.Workflow("fails", start_at="a", settings=pw.workflow_settings(initial={"n": 1}, paths=[OPEN]))

    def fails(ctx):
        (gate.parent / "in0").touch()
        while not gate.exists():
            time.sleep(0.01)
        raise ValueError(json.dumps(ctx.settings))

    wf.compute(fails, name="a")
    run = server.run(wf)
    until((gate.parent / "in0").exists)
    run.change_settings([replace("/n", 2)])
    gate.touch()
    until(lambda: run.status == "failed")
    again = run.restart()
    until(lambda: again.status == "failed")
    assert '{"n": 1}' in again.error


def test_follow_ups_wait_in_order_for_the_end_of_the_run(server, rows):
    wf = pw.Workflow("asks", start_at="gate")
    wf.checkpoint("gate")
    wf.checkpoint("again")
    wf.edge("gate", "again")
    run = server.run(wf, mode="interactive")
    until(lambda: run.status == "waiting")
    first, second, third = (run.queue_follow_up(text) for text in ("one", "two", "three"))
    run.remove_follow_up(second)
    with pytest.raises(ConflictError, match="removed already"):
        run.remove_follow_up(second)
    with pytest.raises(NotFoundError):
        run.remove_follow_up("nobody")
    for text, said in (("  \n", "not blank"), ("x" * ((64 << 10) + 1), "may take 65,536")):
        with pytest.raises(ConflictError, match=said):
            run.queue_follow_up(text)
    run.answer(1)
    until(lambda: run.status == "waiting" and len(run.chain) == 2)
    listed = "SELECT follow_up_id, order_number, status, run_id FROM workflow_follow_ups ORDER BY order_number"
    assert [tuple(row) for row in rows(listed)] == [
        (first, 1, "queued", run.chain[-1]), (second, 2, "removed", run.chain[0]), (third, 3, "queued", run.chain[-1]),
    ]  # fmt: skip
    run.cancel()
    assert [row[2] for row in rows(listed)] == ["cancelled", "removed", "cancelled"]
    with pytest.raises(ConflictError, match="is cancelled"):
        run.queue_follow_up("late")


def test_a_run_without_a_session_takes_no_follow_up(server):
    wf = pw.Workflow("asks", start_at="gate")
    wf.checkpoint("gate")
    with pytest.raises(ConflictError, match="has no session"):
        server.run(wf).queue_follow_up("x")
