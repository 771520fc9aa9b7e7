"""What is played: short stories that together visit every transition of a run.

Each asks and waits as a person would, tolerates any death of the server, and ends the same way whatever died. One with
a function `before` finds the file as that function, and a SIGKILL of its server, have left it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pi_workflows_nb as pw

from .play import Play
from .resource_scenarios import reconciled

Scenario = Callable[[Play], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Enter a story under its name."""
    SCENARIOS[function.__name__] = function
    return function


def _append(path: str, key: str) -> None:
    import os

    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (key + "\n").encode())
    os.fsync(file)
    os.close(file)


def _append_once(path: str, key: str) -> None:
    from pathlib import Path

    if not Path(path).exists() or key not in Path(path).read_text().split():
        _append(path, key)


def _held_by(gate: str) -> None:
    """Come back when the gate stands open."""
    import os
    import time

    while not os.path.exists(gate):
        time.sleep(0.005)


def _steps(play: Play) -> Any:
    """Compute, an idempotent action with an update, a shell command, a first try that fails, a large value."""
    ledger = str(play.folder / "ledger")
    wf = pw.Workflow("steps", start_at="first")

    @wf.compute
    def first(ctx):
        return {"n": ctx.input["n"] + 1}

    @wf.action(effect=pw.idempotent_effect("ledger.append"))
    def charge(ctx):
        _append_once(ledger, ctx.effect.idempotency_key)
        ctx.publish_update("note", "charged", {"n": ctx.outputs["first"]["n"]})
        return "charged"

    @wf.shell(effect=pw.idempotent_effect("shell.echo"), parse=lambda result: result["stdout"].strip())
    def say(ctx):
        return {"command": "echo", "args": ["said"]}

    @wf.compute(retries=pw.retry(times=3, backoff=(0.01, 1, 1), on=(ConnectionError,)))
    def flaky(ctx):
        if ctx.attempt_number == 1:
            raise ConnectionError("the first try")
        return True

    @wf.compute
    def large(ctx):
        return "x" * 300_000

    @wf.compute
    def last(ctx):
        return {"n": ctx.outputs["first"]["n"], "large": len(ctx.outputs["large"])}

    for one, following in pairwise(("first", "charge", "say", "flaky", "large", "last")):
        wf.edge(one, following)
    return wf


@scenario
def steps(play: Play) -> None:
    """A run of every kind of node, from the making of the file to the stop of the server."""
    play.until(play.run(_steps(play), {"n": 1}), "completed")


@scenario
def answered(play: Play) -> None:
    """A checkpoint, its answer, and the continuation."""
    wf = pw.Workflow("answered", start_at="ask")

    @wf.checkpoint
    def ask(ctx):
        return "how many?"

    @wf.compute
    def twice(ctx):
        return 2 * ctx.outputs["ask"]

    wf.edge("ask", "twice")
    run_id = play.run(wf)
    play.until(run_id, "waiting")
    play.ask("checkpoint.answer", run_id, {"value": {"inline": 21}})
    play.until(run_id, "completed")


def _gated(play: Play, name: str) -> Any:
    gate, begun = str(play.folder / "gate"), str(play.folder / "begun")
    ledger = str(play.folder / "ledger")
    wf = pw.Workflow(name, start_at="before")

    @wf.compute
    def before(ctx):
        return 1

    @wf.action(effect=pw.idempotent_effect("ledger.append"))
    def held(ctx):
        _append_once(ledger, ctx.effect.idempotency_key)
        _append(begun, "begun")
        _held_by(gate)
        return 2

    @wf.compute
    def after(ctx):
        return 3

    wf.edge("before", "held")
    wf.edge("held", "after")
    return wf


@scenario
def paused(play: Play) -> None:
    """A pause in the middle of a node, and a resume."""
    run_id = play.run(_gated(play, "paused"))
    play.wait_for(play.folder / "begun")
    play.ask("run.pause", run_id)
    play.until(run_id, "paused")
    (play.folder / "gate").touch()
    play.ask("run.resume", run_id)
    play.until(run_id, "completed")


@scenario
def cancelled(play: Play) -> None:
    """A cancellation in the middle of an action, asked for twice."""
    run_id = play.run(_gated(play, "cancelled"))
    play.wait_for(play.folder / "begun")
    play.ask("run.cancel", run_id)
    play.ask("run.cancel", run_id)
    play.until(run_id, "cancelled")


@scenario
def cancelled_while_waiting(play: Play) -> None:
    """A cancellation of a run that waits for an answer."""
    wf = pw.Workflow("cancelled-while-waiting", start_at="ask")
    wf.checkpoint(lambda ctx: "well?", name="ask")
    run_id = play.run(wf)
    play.until(run_id, "waiting")
    play.ask("run.cancel", run_id)
    play.until(run_id, "cancelled")


@scenario
def failed(play: Play) -> None:
    """A node that fails, one that times out and is routed to a recovery, and a run that fails of it."""
    wf = pw.Workflow("failed", start_at="slow")

    @wf.compute(timeout=0.2)
    def slow(ctx):
        ctx.cancelled.wait(30)

    @wf.compute
    def broken(ctx):
        raise ValueError("broken")

    wf.edge("slow", switch="$result.outcome", cases={"timed_out": "broken", "ok": "broken"})
    play.until(play.run(wf), "failed")


@scenario
def timed_out(play: Play) -> None:
    """A node whose code does not stop: its runner is ended, the run with it."""
    wf = pw.Workflow("timed-out", start_at="stuck")

    @wf.compute(timeout=0.2)
    def stuck(ctx):
        import time

        time.sleep(60)

    play.until(play.run(wf), "timed_out")


@scenario
def ambiguous(play: Play) -> None:
    """A manual effect whose runner dies inside it: confirmed where it happened, tried again where it did not."""
    ledger = str(play.folder / "ledger")
    wf = pw.Workflow("ambiguous", start_at="happened")

    @wf.action(effect=pw.manual_effect("letter.send"))
    def happened(ctx):
        import os

        _append(ledger, ctx.effect.idempotency_key)
        if ctx.effect.attempt_number == 1:
            os._exit(9)

    @wf.action(effect=pw.manual_effect("letter.send"))
    def did_not(ctx):
        import os

        if ctx.effect.attempt_number == 1:
            os._exit(9)
        _append(ledger, ctx.effect.idempotency_key)

    wf.edge("happened", "did_not")
    _settled_by_a_person(play, play.run(wf))


def _settled_by_a_person(play: Play, run_id: str) -> None:
    """Look into the world for each ambiguous effect, and say what was found there."""
    while (view := play.until(run_id, "ambiguous", "completed"))["status"] == "ambiguous":
        effect_id = view["waitingFor"]["effectId"]
        effects = play.again(lambda server: server.effects())
        ledger = play.folder / "ledger"
        happened = ledger.exists() and effects.loc[effect_id, "idempotency_key"] in ledger.read_text().split()
        try:
            play.ask("effect.confirm" if happened else "effect.retry", run_id, {"effectId": effect_id})
        except pw.ConflictError:
            pass  # it was settled by the same word before the server died
        time.sleep(0.01)


@scenario
def crashing(play: Play) -> None:
    """A node that kills its runner three times: the run is parked, and goes on when it is resumed."""
    mended = str(play.folder / "mended")
    wf = pw.Workflow("crashing", start_at="bad")

    @wf.compute
    def bad(ctx):
        import os

        if not os.path.exists(mended):
            os._exit(3)
        return "mended"

    run_id = play.run(wf)
    limit = time.monotonic() + 60
    while not play.view(run_id)["reason"]:
        assert time.monotonic() < limit
        time.sleep(0.01)
    (play.folder / "mended").touch()
    play.ask("run.resume", run_id)
    play.until(run_id, "completed")


@scenario
def several(play: Play) -> None:
    """Runs side by side, whose proposals share commits, and a stop with a run under way that the next start carries."""
    held = play.run(_gated(play, "held"))
    wf = [_counting(f"counting-{number}") for number in range(3)]
    for run_id in [play.run(one, number) for number, one in enumerate(wf)]:
        play.until(run_id, "completed")
    play.wait_for(play.folder / "begun")
    play.again(lambda server: server.stop())
    (play.folder / "gate").touch()
    play.until(held, "completed")


def _counting(name: str) -> Any:
    wf = pw.Workflow(name, start_at="n0")
    for number in range(4):
        wf.compute(lambda ctx: len(ctx.outputs), name=f"n{number}")
        if number:
            wf.edge(f"n{number - 1}", f"n{number}")
    return wf


@scenario
def recovered(play: Play) -> None:
    """The start of a server on what a killed one has left: runs under way, a manual effect begun, one waiting."""
    (play.folder / "gate").touch()
    play.until(play.run(_gated(play, "left")), "completed")
    _settled_by_a_person(play, play.run(_letter(play)))


def _letter(play: Play) -> Any:
    ledger, gate, begun = (str(play.folder / name) for name in ("ledger", "gate", "written"))
    wf = pw.Workflow("letter", start_at="send")

    @wf.action(effect=pw.manual_effect("letter.send"))
    def send(ctx):
        _append(ledger, ctx.effect.idempotency_key)
        _append(begun, "written")
        _held_by(gate)

    return wf


def _left_running(play: Play) -> None:
    play.run(_gated(play, "left"))
    play.run(_letter(play))
    play.wait_for(play.folder / "begun")
    play.wait_for(play.folder / "written")


recovered.before = _left_running  # type: ignore[attr-defined]


@scenario
def restarted(play: Play) -> None:
    """A run that failed, and its restart, which does not."""
    mended = str(play.folder / "mended")
    wf = pw.Workflow("restarted", start_at="maybe")

    @wf.compute
    def maybe(ctx):
        import os

        if not os.path.exists(mended):
            raise ValueError("not yet")
        return "mended"

    run_id = play.run(wf)
    play.until(run_id, "failed")
    (play.folder / "mended").touch()
    play.until(play.ask("run.restart", run_id)["runId"], "completed")


@scenario
def asleep(play: Play) -> None:
    """Two sleeps; during the second, which is long, a pause and a resume, then a cancellation of another run."""
    wf = pw.Workflow("asleep", start_at="nap")
    wf.sleep("nap", 0.2)
    wf.compute(lambda ctx: "awake", name="after")
    wf.edge("nap", "after")
    play.until(play.run(wf), "completed")
    long = pw.Workflow("long-asleep", start_at="night")
    long.sleep("night", 3600)
    run_id = play.run(long)
    _until_it_sleeps(play, run_id)
    play.ask("run.pause", run_id)
    play.until(run_id, "paused")
    play.ask("run.resume", run_id)
    _until_it_sleeps(play, run_id)
    play.ask("run.cancel", run_id)
    play.until(run_id, "cancelled")


def _until_it_sleeps(play: Play, run_id: str) -> None:
    limit = time.monotonic() + 60
    while not play.until(run_id, "queued", "running")["activity"].startswith("asleep"):
        assert time.monotonic() < limit
        time.sleep(0.005)


@scenario
def signalled(play: Play) -> None:
    """An event that two runs wait for, one that nobody sends, and a wait that is paused meanwhile."""
    waits = []
    for number in range(2):
        wf = pw.Workflow(f"signalled-{number}", start_at="hear")
        wf.wait_event("hear", "go")
        wf.compute(lambda ctx: ctx.outputs["hear"], name="after")
        wf.edge("hear", "after")
        waits.append(play.run(wf))
    for run_id in waits:
        play.until(run_id, "waiting")
    play.ask("run.pause", waits[1])
    play.ask("run.resume", waits[1])
    play.ask("checkpoint.signal", None, {"name": "go", "project": str(play.project), "value": {"inline": 7}})
    for run_id in waits:
        play.until(run_id, "completed")
    wf = pw.Workflow("unheard", start_at="hear")
    wf.wait_event("hear", "never", timeout=0.2)
    wf.compute(lambda ctx: "nothing came", name="late")
    wf.edge("hear", switch="$result.outcome", cases={"timed_out": "late", "ok": "late"})
    play.until(play.run(wf), "completed")


@scenario
def one_session(play: Play) -> None:
    """Interactive runs of one session go one after the other; one is paused before its start."""
    first = play.run(_gated(play, "first"), mode="interactive")
    play.wait_for(play.folder / "begun")
    second = play.run(_counting("second"), mode="interactive")
    third = play.run(_counting("third"), mode="interactive")
    play.ask("run.pause", second)
    play.until(second, "paused")
    (play.folder / "gate").touch()
    play.until(first, "completed")
    play.until(third, "completed")
    play.ask("run.resume", second)
    play.until(second, "completed")


@scenario
def source_changed(play: Play) -> None:
    """A run whose stored source is not trusted any more is parked, and goes on when it is again and is resumed."""
    run_id = play.run(_gated(play, "left"))
    limit = time.monotonic() + 60
    while "source" not in (play.view(run_id)["reason"] or ""):
        assert time.monotonic() < limit
        time.sleep(0.01)
    play.again(lambda server: server.stop())
    _key(play).write_bytes((play.folder / "key").read_bytes())
    (play.folder / "gate").touch()
    play.ask("run.resume", run_id)
    play.until(run_id, "completed")


def _key(play: Play) -> Any:
    return play.folder / "home" / "source-signing.key"


def _left_with_another_key(play: Play) -> None:
    play.run(_gated(play, "left"))
    play.wait_for(play.folder / "begun")
    (play.folder / "key").write_bytes(_key(play).read_bytes())
    _key(play).write_bytes(bytes(32))


source_changed.before = _left_with_another_key  # type: ignore[attr-defined]

scenario(reconciled)


@scenario
def asked(play: Play) -> None:
    """A node that asks its session: a turn without an answer, one that is refused, a pause, and one that will do."""
    wf = pw.Workflow("asked", start_at="who")

    def whole(value):
        if type(value) is not int:
            raise ValueError("give a whole number")
        return 2 * value

    wf.agent(lambda ctx: "how many?", name="who", validate=whole)
    wf.compute(lambda ctx: ctx.outputs["who"], name="after")
    wf.edge("who", "after")
    run_id = play.run(wf)
    play.until(run_id, "waiting")
    play.turn(None)
    play.turn("many")
    play.ask("run.pause", run_id)
    play.until(run_id, "paused")
    play.ask("run.resume", run_id)
    play.turn(21)
    play.until(run_id, "completed")


def _deciding(name: str, seconds: float | None) -> Any:
    from datetime import timedelta

    wf = pw.Workflow(name, start_at="ship")
    on_timeout = None if seconds is None else pw.after(timedelta(seconds=seconds), "yes")
    choices = pw.human_choices(yes=pw.choice("Yes"), no=pw.choice("No"))

    @wf.human_decision(choices=choices, on_timeout=on_timeout)
    def ship(ctx):
        return "ship it?"

    wf.compute(lambda ctx: ctx.outputs["ship"]["choice"], name="yes")
    wf.compute(lambda ctx: ctx.outputs["ship"]["choice"], name="no")
    wf.human_decision_edge("ship", {"yes": "yes", "no": "no"})
    return wf


@scenario
def decided(play: Play) -> None:
    """A decision of a person, taken by one after another has come with no answer."""
    run_id = play.run(_deciding("decided", None))
    play.until(run_id, "waiting")
    (decision_id,) = play.again(lambda server: list(server.decisions(run=run_id).index))
    with contextlib.suppress(pw.WorkflowInputError):
        play.ask("decision.answer", None, {"decisionId": decision_id, "response": "perhaps"})
    play.ask("decision.answer", None, {"decisionId": decision_id, "response": "no"})
    play.until(run_id, "completed")


@scenario
def decided_by_time(play: Play) -> None:
    """A decision that nobody takes in time."""
    play.until(play.run(_deciding("decided-by-time", 0.2)), "completed")


@scenario
def asked_in_vain(play: Play) -> None:
    """A node that asks its session, and fails with its third turn without an answer."""
    wf = pw.Workflow("asked-in-vain", start_at="who")
    wf.agent(lambda ctx: "how many?", name="who")
    run_id = play.run(wf)
    play.until(run_id, "waiting")
    for _ in range(3):
        play.turn(None)
    play.until(run_id, "failed")
