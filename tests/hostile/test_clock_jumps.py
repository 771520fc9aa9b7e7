"""A wall clock set by an hour under a running system costs no claim, no deadline, no step and no effect."""

from __future__ import annotations

import json
import time
from contextlib import closing

import psutil
import pytest

from pi_workflows_nb.state.database import open_read_only
from tests.hostile.clocks import WallClock
from tests.hostile.surroundings import sound, until
from tests.kernels import kernel

START = """
import json, os, time
import pi_workflows_nb as pw
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

patient = pw.Workflow("patient", start_at="waits")

@patient.compute
def waits(ctx):
    held("gate")
    return "waited"

stuck.edge("never", switch="$result.outcome", cases=dict.fromkeys(["ok", "timed_out"], "after"))
"""
RUN = """
served_by = os.environ["FAKETIME_TIMESTAMP_FILE"]
os.environ["FAKETIME_TIMESTAMP_FILE"] = {clock!r}  # which a run sees as it is at this moment
runs = {{wf.name: server.run(wf) for wf in [{workflows}]}}
os.environ["FAKETIME_TIMESTAMP_FILE"] = served_by
"""


HOUR = 3600
CASES = [
    ("thread", "server and runners", HOUR),
    ("process", "server and runners", -HOUR),
    ("thread", "server", HOUR),
    ("process", "server", -HOUR),
    ("thread", "runners", -HOUR),
    ("process", "runners", HOUR),
]
LONG_CASES = [(placement, who, -seconds) for placement, who, seconds in CASES]


class Clocks:
    """Two clocks that can be set apart from each other: of the kernel and whoever serves, and of the runners."""

    def __init__(self, folder, monkeypatch):
        self.server, self.runners = WallClock(folder / "clock"), WallClock(folder / "other clock")
        for name, value in self.server.variables.items():
            monkeypatch.setenv(name, value)

    def set(self, who, seconds):
        for name in ("server", "runners"):
            if name in who:
                getattr(self, name).jump(seconds)


def asked(path, query):
    with closing(open_read_only(path)) as connection:
        return connection.execute(query).fetchall()


UNDER_WAY = "SELECT count(*) FROM node_attempts WHERE status IN ('running', 'waiting')"
CLAIMS = (
    "SELECT workflow_name, max(generation) FROM leases JOIN runs USING (resource_id)"
    " JOIN workflow_definitions USING (definition_digest) GROUP BY 1 ORDER BY 1"
)


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "who", "seconds"), [*CASES, *LONG_CASES])
def test_a_clock_that_is_set_costs_nothing(tmp_path, monkeypatch, long_form, placement, who, seconds):
    if not long_form and (placement, who, seconds) in LONG_CASES:
        pytest.skip("the other sign of each is played with --long")
    clocks, path = Clocks(tmp_path, monkeypatch), tmp_path / "s.sqlite"
    with kernel(tmp_path) as jupyter:
        jupyter.run(START.format(database=str(path), project=str(tmp_path), placement=placement))
        jupyter.run(DEFINE)
        jupyter.run(RUN.format(clock=str(clocks.runners.file), workflows="long, asleep, stuck"))
        until(lambda: asked(path, UNDER_WAY) == [(3,)])
        clocks.set(who, seconds)
        # Long enough for renewals, and for whoever would believe that an hour has passed.
        time.sleep(1.5)
        (tmp_path / "gate").touch()
        said = jupyter.run("print(json.dumps([run.wait(timeout=60, until='end').output for run in runs.values()]))")
        third, slept, stuck = json.loads(said)
        assert (third, stuck) == ("third", "timed_out")
        assert 4 < slept < 40
        seen = float(jupyter.run("print(runs['long'].output_of('first'))"))
        assert abs(seen - time.time() - seconds * ("runners" in who)) < 600, "the node saw another clock"
        (written,) = asked(path, "SELECT max(updated_at) FROM runs")[0]
        assert abs(written / 1000 - time.time() - seconds * ("server" in who)) < 600, "so did the server"
        assert jupyter.run("print(len(server.verify()), server.status()['epoch'])") == "0 1\n"
        jupyter.run("server.stop()")
    assert len((tmp_path / "ledger").read_text().split()) == 1
    assert asked(path, "SELECT node_id, attempt_number, status FROM node_attempts ORDER BY 1, 2") == [
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
    # A sleep is claimed again at its end, a node that does not stop ends its runner; nothing else takes a new claim.
    assert asked(path, CLAIMS) == [("asleep", 2), ("long", 1), ("stuck", 2)]
    sound(path)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_clock_that_is_set_while_nobody_serves_holds_no_run(tmp_path, monkeypatch, placement, seconds):
    clocks, path = Clocks(tmp_path, monkeypatch), tmp_path / "s.sqlite"
    start = START.format(database=str(path), project=str(tmp_path), placement=placement)
    with kernel(tmp_path) as jupyter:
        jupyter.run(start)
        jupyter.run(DEFINE)
        jupyter.run(RUN.format(clock=str(clocks.server.file), workflows="patient"))
        until(lambda: asked(path, UNDER_WAY) == [(1,)])
        served = int(jupyter.run("print(server.status()['pid'])"))
        jupyter.kill()
        if placement == "process":
            psutil.Process(served).kill()
        clocks.set("server", seconds)
    with kernel(tmp_path) as jupyter:
        (tmp_path / "gate").touch()
        began = time.monotonic()
        jupyter.run(start)
        assert jupyter.run("print(server.runs().index.size, server.status()['epoch'])") == "1 2\n"
        found = "server.get_run(server.runs().index[0])"
        assert jupyter.run(f"print({found}.wait(timeout=60).output)").splitlines()[-1] == "waited"
        assert time.monotonic() - began < 20, "somebody waited for a clock"
        assert jupyter.run("print(len(server.verify()))") == "0\n"
        (written,) = asked(path, "SELECT max(updated_at) FROM runs")[0]
        assert abs(written / 1000 - time.time() - seconds) < 600, "the server saw another clock"
        jupyter.run("server.stop()")
    assert asked(path, CLAIMS) == [("patient", 2)]
    sound(path)
