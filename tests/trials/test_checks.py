"""Each check tells the fault that it is there for, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from . import checks
from .cell import ACTIONS, NAMES
from .phases import classify
from .record import Effect, Event, Glance, Line, Record, Runner, Step


def key(name):
    return f"run-1:ledger.append:{name}:1"


def line(what, name, attempt="a", pid=10):
    return Line(what, name, 1, f"{attempt}-{name}", pid, "run-1", 0.0)


def told(count, pid=10):
    return [line(what, name, pid=pid) for name in NAMES[:count] for what in ("begin", "done")]


def record(count=8):
    """A run whose first nodes are committed."""
    lines = tuple(told(count))
    keys = tuple(key(NAMES[index]) for index in sorted(ACTIONS) if index < count)
    return Record(
        lines,
        len(lines),
        keys,
        (("run-1", "running", "running"),),
        "host-1",
        tuple(Step(index, name, f"a-{name}", 1, "00") for index, name in enumerate(NAMES[:count])),
        (
            Event(1, "e1", "r", 1, "run.queued", None, None),
            Event(2, "e2", "r", 2, "lease.claimed", "host-1", 1),
            Event(3, "e3", "r", 3, "run.queue_running", "host-1", 1),
        ),
        (Runner("w1", 1, 1, "running", 10),),
        tuple(Effect(one, "ledger.append", "applied", "00", 1) for one in keys),
    )


def test_a_sound_record_has_no_faults():
    assert list(checks.always(record())) == []
    assert list(checks.kept(record(4), record(8), "then")) == []


def changed(**fields):
    return replace(record(), **fields)


GOOD = record()
CASES = {
    "the key started 2 runs": changed(runs=GOOD.runs * 2),
    "not the nodes in their order": changed(steps=(*GOOD.steps, GOOD.steps[3])),
    "n03 began again": changed(lines=(*GOOD.lines, line("begin", "n03", "b"))),
    "n07) was committed, but its attempt was never done": changed(lines=GOOD.lines[:-1]),
    "process 10 executed n09": changed(lines=(*GOOD.lines, line("begin", "n08", pid=11), line("begin", "n09"))),
    "action n09 began though n08": changed(lines=(*GOOD.lines, line("begin", "n09")), early=99),
    "action n07 began though its effect": changed(effects=GOOD.effects[:-1], ledger=GOOD.ledger[:-1]),
    "stands there 2 times": changed(ledger=(*GOOD.ledger, GOOD.ledger[0])),
    "no effect is recorded under it": changed(ledger=(*GOOD.ledger, key("n22"))),
    "is recorded 2 times": changed(effects=GOOD.effects * 2),
    "is applied, with 2 tries": changed(effects=(GOOD.effects[0]._replace(applied=2), *GOOD.effects[1:])),
    "next generation, these had [1, 1]": changed(events=(*GOOD.events, GOOD.events[1]._replace(seq=4))),
    "of generation 2 was followed by one of generation 1": changed(
        events=(*GOOD.events, Event(4, "e4", "r", 4, "lease.claimed", "host-1", 2), GOOD.events[2])
    ),
    "the runners had the generations [1, 1]": changed(runners=GOOD.runners * 2),
    "started by the epochs [2, 1]": changed(
        runners=(Runner("w0", 1, 2, "crashed", 9), Runner("w1", 2, 1, "running", 10))
    ),
    "is of host-1, after events of host-2": changed(
        events=(*GOOD.events, Event(4, "e4", "r", 4, "run.paused", "host-2", 1), GOOD.events[2])
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_a_fault_of_a_record_is_told(text):
    assert any(text in fault for fault in checks.always(CASES[text])), list(checks.always(CASES[text]))


@pytest.mark.parametrize(
    ("later", "text"),
    [
        (changed(steps=GOOD.steps[:-1]), "lost: step 7"),
        (changed(steps=(GOOD.steps[0]._replace(output="11"), *GOOD.steps[1:])), "lost: step 0"),
        (changed(events=GOOD.events[:-1]), "lost: event 2"),
        (changed(events=(GOOD.events[0]._replace(id="other"), *GOOD.events[1:])), "lost: event 0"),
        (changed(runners=()), "lost: runner 0"),
        (changed(ledger=GOOD.ledger[:-1]), "lost: ledger line"),
        (changed(effects=(GOOD.effects[0]._replace(status="pending"), *GOOD.effects[1:])), "lost: an applied effect"),
    ],
)
def test_what_was_lost_is_told(later, text):
    assert any(fault.startswith(text) for fault in checks.kept(GOOD, later, "then"))


def test_a_step_that_was_visible_and_is_gone_is_told():
    assert list(checks.seen(Glance(attempts=frozenset({"a-n00"})), GOOD)) == []
    assert list(checks.seen(Glance(attempts=frozenset({"gone"})), GOOD)) != []


@pytest.mark.parametrize(
    ("glance", "lines", "phase"),
    [
        (Glance(), [], "start"),
        (Glance(run="r", status="queued", queue="queued"), [], "start"),
        (Glance(run="r", status="running", queue="starting"), [], "claim"),
        (Glance(run="r", status="running", queue="running"), [line("begin", "n00")], "node"),
        (Glance(run="r", status="running", queue="running"), told(1), "proposal"),
        (Glance(run="r", status="running", queue="running"), [*told(1), line("begin", "n01")], "proposal"),
        (
            Glance(run="r", status="running", queue="running", attempts=frozenset({"a-n00"})),
            [*told(1), line("begin", "n01")],
            "node",
        ),
        (Glance(run="r", status="running", queue="running"), told(30), "terminal"),
        (Glance(run="r", status="completed", queue="done", active_runners=1), told(30), "terminal"),
        (Glance(run="r", status="completed", queue="done"), told(30), "ended"),
    ],
)
def test_what_was_running_is_told_by_rows_and_words(glance, lines, phase):
    assert classify(glance, lines, recovering=False) == phase
    assert classify(glance, lines, recovering=True) == "recovery"
