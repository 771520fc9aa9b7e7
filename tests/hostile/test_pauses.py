"""A lid that is closed, and clocks that jump: a node's deadline counts the time in which it could do something."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from contextlib import closing

import psutil
import pytest

from pi_workflows_nb.server import clock
from pi_workflows_nb.state.database import open_read_only
from tests.hostile.nodes import Host, hostile
from tests.hostile.surroundings import sound, until
from tests.kernels import kernel

START = """
import pi_workflows_nb as pw
server = pw.start(database={database!r}, project={project!r}, server={placement!r})
print(server._connection.server_pid)
"""
RUN = """
wf = pw.Workflow("paused", start_at="before")

@wf.compute
def before(ctx):
    return "before"

{node}

@wf.compute
def after(ctx):
    return [ctx.results["bad"]["outcome"], ctx.outputs.get("bad")]

wf.edge("before", "bad")
wf.edge("bad", switch="$result.outcome", cases=dict.fromkeys(["ok", "failed", "timed_out"], "after"))
run = server.run(wf)
print(run.id)
"""
COMPUTE = """
@wf.compute(timeout={timeout})
def bad(ctx):
    import ctypes, time
    def spin(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
    BODY
    return "in time"
"""
TWO_SECONDS = {
    "sleeping": COMPUTE.replace("BODY", "for _ in range(20): time.sleep(0.1)"),
    "spinning": COMPUTE.replace("BODY", "for _ in range(20): spin(0.1)"),
    "with the interpreter's lock": COMPUTE.replace("BODY", "for _ in range(20): ctypes.PyDLL(None).usleep(100_000)"),
    "in a command": """
@wf.shell(timeout={timeout}, effect=pw.idempotent_effect("test.sleeps"), parse=lambda result: "in time")
def bad(ctx):
    return {{"command": "sh", "args": ["-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done"]}}
""",
    "asking the server": """
@wf.action(timeout={timeout}, effect=pw.idempotent_effect("test.asks"))
async def bad(ctx):
    import asyncio
    for number in range(10):
        await asyncio.sleep(0.2)
        await ctx.publish_update("progress", "overall", {{"number": number}})
    return "in time"
""",
}
FOR_EVER = {
    "sleeping": COMPUTE.replace("BODY", "while True: time.sleep(0.01)"),
    "spinning": COMPUTE.replace("BODY", "while True: pass"),
    "with the interpreter's lock": COMPUTE.replace("BODY", "while True: ctypes.PyDLL(None).pause()"),
}
ONE_OF_EACH = [("before", "completed"), ("bad", "completed"), ("after", "completed")]


class Machine:
    """A kernel with a server, all of whose processes can be stopped and go on together."""

    def __init__(self, kernel, folder, placement):
        self.kernel, self.path = kernel, folder / "s.sqlite"
        start = START.format(database=str(self.path), project=str(folder), placement=placement)
        self.server = int(kernel.run(start))

    def begin(self, node, timeout):
        """Start a run of three steps; gives its id once the second has begun."""
        run = self.kernel.run(RUN.format(node=node.format(timeout=timeout))).strip()
        until(lambda: self.rows("SELECT 1 FROM node_attempts WHERE run_id = ? AND node_id = 'bad'", run))
        time.sleep(0.3)
        return run

    def output(self):
        return self.kernel.run("print(run.wait(timeout=60, until='end').output)").strip()

    def family(self):
        """Every process of the machine."""
        first = psutil.Process(self.kernel.pid)
        return [first, *first.children(recursive=True)]

    def runner(self, run):
        query = "SELECT pid FROM run_workers WHERE run_id = ? AND status = 'running'"
        return psutil.Process(self.rows(query, run)[0][0])

    def rows(self, query, *parameters):
        with closing(open_read_only(self.path)) as connection:
            return connection.execute(query, parameters).fetchall()

    def generations(self, run):
        """Of all that was written about a run, in order, the claims that allowed it."""
        query = (
            "SELECT e.lease_generation FROM events e JOIN runs r USING (resource_id)"
            " WHERE r.run_id = ? AND e.lease_generation IS NOT NULL ORDER BY e.rowid"
        )
        return [generation for generation, _ in itertools.groupby(row[0] for row in self.rows(query, run))]

    def attempts(self, run):
        query = "SELECT node_id, status FROM node_attempts WHERE run_id = ? ORDER BY started_at, rowid"
        return self.rows(query, run)

    def lasted(self, run):
        """Seconds between the recorded start and end of the node."""
        query = "SELECT finished_at - started_at FROM node_attempts WHERE run_id = ? AND node_id = 'bad'"
        return self.rows(query, run)[-1][0] / 1000


@pytest.fixture(scope="module", params=["thread", "process"])
def machine(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    with kernel(folder) as started:
        machine = Machine(started, folder, request.param)
        yield machine
        started.run("assert len(server.verify()) == 0\nserver.stop()")
    sound(machine.path)


def pause(processes, seconds):
    """Stop processes, the first one first, and let them go on in the same order."""
    for one in processes:
        one.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("how", TWO_SECONDS)
def test_a_pause_takes_no_time_from_a_node(machine, how):
    run = machine.begin(TWO_SECONDS[how], timeout=3.5)
    pause(machine.family(), 3)
    assert machine.output() == "['ok', 'in time']"
    assert machine.attempts(run) == ONE_OF_EACH
    assert machine.generations(run) == [1]


def test_neither_do_many_short_ones(machine):
    run = machine.begin(TWO_SECONDS["sleeping"], timeout=3.5)
    for _ in range(3):
        pause(machine.family(), 1)
        time.sleep(0.2)
    assert machine.output() == "['ok', 'in time']"
    assert machine.attempts(run) == ONE_OF_EACH


@pytest.mark.parametrize("how", FOR_EVER)
def test_after_a_pause_a_node_that_never_ends_is_given_up_as_ever(machine, how):
    run = machine.begin(FOR_EVER[how], timeout=1.5)
    pause(machine.family(), 2)
    assert machine.output() == "['timed_out', None]"
    assert [status for _, status in machine.attempts(run)] == ["completed", "timed_out", "completed"]
    assert 1.5 + 2 - 0.2 < machine.lasted(run) < 1.5 + 2 + 20


def test_a_pause_of_the_runner_alone_takes_no_time_from_its_node(machine):
    run = machine.begin(TWO_SECONDS["sleeping"], timeout=3.5)
    pause([machine.runner(run)], 3)
    assert machine.output() == "['ok', 'in time']"
    assert machine.attempts(run) == ONE_OF_EACH


@pytest.mark.parametrize("how", ["sleeping", "asking the server"])
def test_a_pause_of_the_server_alone_takes_no_time_from_a_node(machine, how):
    run = machine.begin(TWO_SECONDS[how], timeout=3.5)
    pause([psutil.Process(machine.server)], 3)
    assert machine.output() == "['ok', 'in time']"
    assert machine.attempts(run) == ONE_OF_EACH


@pytest.mark.parametrize("seconds", [20, 60])
def test_a_lid_that_stays_closed_for_long(machine, long_form, seconds):
    if not long_form:
        pytest.skip("takes as long as it says; --long does it")
    run = machine.begin(TWO_SECONDS["sleeping"], timeout=3.5)
    pause(machine.family(), seconds)
    assert machine.output() == "['ok', 'in time']"
    attempts, generations = machine.attempts(run), machine.generations(run)
    assert [one for one in attempts if one[1] == "completed"] == ONE_OF_EACH
    assert "timed_out" not in [status for _, status in attempts]
    # A claim that lasts 30 s is another's after 60; what its successor has begun to write, it alone writes.
    assert generations == ([1, 2] if seconds > 30 else sorted(set(generations)))
    assert machine.rows("SELECT count(*) FROM run_steps WHERE run_id = ?", run) == [(3,)]


def test_code_that_holds_the_interpreters_lock_past_its_deadline_was_not_paused(tmp_path, state_folder, placement):
    host = Host(tmp_path / "host", state_folder, placement)
    try:
        run = host.ended(
            hostile("import ctypes\nctypes.PyDLL(None).sleep(2)\nreturn 'late'", kind="compute(timeout=1)")
        )
        assert run.output == ["timed_out", None]
    finally:
        host.close()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wall_clock_that_jumps_moves_no_deadline(tmp_path, state_folder, monkeypatch, hours):
    jumped, ahead = 0, clock._wall_ahead
    monkeypatch.setattr(clock, "_wall_ahead", lambda: ahead() + jumped)
    host = Host(tmp_path / "host", state_folder, "thread")
    try:
        quick = host.run(hostile("import time\ntime.sleep(1.5)\nreturn 'in time'", kind="compute(timeout=30)"))
        stuck = host.run(hostile("import ctypes\nctypes.PyDLL(None).sleep(30)", kind="compute(timeout=2)"))
        query = "SELECT count(*) FROM node_attempts WHERE node_id = 'bad'"
        until(lambda: host.rows(query) == [(2,)])
        jumped = hours * 3_600_000_000_000
        assert quick.wait(timeout=30).output == ["ok", "in time"]
        assert stuck.wait(timeout=30).output == ["timed_out", None]
        assert host.runners(quick) == ["exited"]
        (written,) = host.rows("SELECT updated_at FROM runs WHERE run_id = ?", stuck.id)[0]
        assert abs(written / 1000 - time.time() - hours * 3600) < 600
    finally:
        host.close()
