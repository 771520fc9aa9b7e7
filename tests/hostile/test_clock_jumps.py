"""A wall clock set by an hour under a running system costs no claim, no deadline, no step and no effect."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

from pi_workflows_nb.state.database import open_read_only
from tests.hostile.clocks import WallClock
from tests.hostile.surroundings import sound, until
from tests.kernels import kernel

START = """
import json, os, time
import pi_workflows_nb as pw
os.environ.update({variables})
for name in {without}:
    os.environ.pop(name, None)
server = pw.start(database={database!r}, project={project!r}, server={placement!r})
"""
DEFINE = """
def held(name):
    import os, time
    while not os.path.exists(name):
        time.sleep(0.01)

long = pw.Workflow("long", start_at="first")

@long.compute(timeout=30)
def first(ctx):
    held("gate")
    return time.time()

@long.action(effect=pw.idempotent_effect("test.append"), timeout=30)
def second(ctx):
    with open("ledger", "a") as ledger:
        ledger.write(ctx.effect.idempotency_key + "\\n")

@long.compute(retries=pw.retry(times=2, backoff=(1, 1, 1), on=(RuntimeError,)), timeout=30)
def third(ctx):
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise RuntimeError("once")
    return "third"

for one, other in (("first", "second"), ("second", "third")):
    long.edge(one, other)

asleep = pw.Workflow("asleep", start_at="tired")

@asleep.compute
def tired(ctx):
    return time.monotonic()

asleep.sleep("nap", 4)

@asleep.compute
def awake(ctx):
    return time.monotonic() - ctx.outputs["tired"]

asleep.edge("tired", "nap")
asleep.edge("nap", "awake")

stuck = pw.Workflow("stuck", start_at="never")

@stuck.compute(timeout=3)
def never(ctx):
    import ctypes
    ctypes.PyDLL(None).sleep(60)

@stuck.compute
def after(ctx):
    return ctx.results["never"]["outcome"]

stuck.edge("never", switch="$result.outcome", cases=dict.fromkeys(["ok", "timed_out"], "after"))
runs = {{wf.name: server.run(wf) for wf in (long, asleep, stuck)}}
""".replace("{{", "{").replace("}}", "}")


CASES = [
    ("thread", "all", 3600),
    ("process", "all", -3600),
    ("thread", "server", 3600),
    ("thread", "runners", -3600),
    ("thread", "all", -3600),
    ("process", "all", 3600),
    ("thread", "server", -3600),
    ("thread", "runners", 3600),
]


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "who", "seconds"), CASES)
def test_a_clock_that_is_set_costs_nothing(tmp_path, monkeypatch, long_form, placement, who, seconds):
    if not long_form and CASES.index((placement, who, seconds)) > 3:
        pytest.skip("the other sign of each is played with --long")
    clock, path = WallClock(tmp_path / "clock"), tmp_path / "s.sqlite"
    if who != "runners":
        for name, value in clock.variables.items():
            monkeypatch.setenv(name, value)
    with kernel(tmp_path) as jupyter:
        jupyter.run(
            START.format(
                database=str(path), project=str(tmp_path), placement=placement,
                variables=clock.variables if who == "runners" else {},
                without=["LD_PRELOAD"] if who == "server" else [],
            )
        )  # fmt: skip
        jupyter.run(DEFINE)

        def rows(query):
            with closing(open_read_only(path)) as connection:
                return connection.execute(query).fetchall()

        until(lambda: rows("SELECT count(*) FROM node_attempts WHERE status IN ('running', 'waiting')") == [(3,)])
        clock.jump(seconds)
        # Long enough for renewals, and for whoever would believe that an hour has passed.
        time.sleep(1.5)
        (tmp_path / "gate").touch()
        said = jupyter.run("print(json.dumps([run.wait(timeout=60, until='end').output for run in runs.values()]))")
        third, slept, stuck = json.loads(said)
        assert (third, stuck) == ("third", "timed_out")
        assert 4 < slept < 40
        seen = float(jupyter.run("print(runs['long'].output_of('first'))"))
        assert abs(seen - time.time() - (0 if who == "server" else seconds)) < 600, "the node saw another clock"
        assert jupyter.run("print(len(server.verify()), server.status()['epoch'])") == "0 1\n"
        jupyter.run("server.stop()")
    assert len((tmp_path / "ledger").read_text().split()) == 1
    assert rows("SELECT node_id, attempt_number, status FROM node_attempts ORDER BY node_id, attempt_number") == [
        ("after", 1, "completed"),
        ("awake", 1, "completed"),
        ("first", 1, "completed"),
        ("nap", 1, "completed"),
        ("never", 1, "timed_out"),
        ("second", 1, "completed"),
        ("third", 1, "failed"),
        ("third", 2, "completed"),
        ("tired", 1, "completed"),
    ]
    claims = (
        "SELECT workflow_name, max(generation) FROM leases JOIN runs USING (resource_id)"
        " JOIN workflow_definitions USING (definition_digest) GROUP BY 1 ORDER BY 1"
    )
    # A sleep is claimed again at its end, a node that does not stop ends its runner; nothing else takes a new claim.
    assert rows(claims) == [("asleep", 2), ("long", 1), ("stuck", 2)]
    sound(path)
