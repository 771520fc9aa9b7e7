"""One life for every child of the nursery, with one end; and no process that outlives the runner that started it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import psutil
import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.runner import proc
from pi_workflows_nb.server.child_runner_supervisor import ChildRunnerSupervisor, ChildSpec
from pi_workflows_nb.server.clock import Lateness, SystemClock
from pi_workflows_nb.server.launch import Diagnostics
from pi_workflows_nb.server.processes import ProcessRegistry
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.runners import DIAGNOSTIC_BYTES
from tests.runner.nurseries import alive, gone_within, nursery
from tests.server import talks

READY = "channel.sendall(b'ready\\n')\n"


def supervised(made, code, hear=None, **options):
    """A child of that code, supervised on this loop; `hear` gets each line and the supervisor."""
    server = SimpleNamespace(nursery=made, processes=ProcessRegistry(), lateness=Lateness(), clock=SystemClock())
    spec = ChildSpec(
        label="child", mode=code, epoch="an-epoch", envelope=b"begin", environment=None, folder="/", **options
    )

    def on_frame(line):
        if line == b"ready":
            child.said_ready()
        elif line == b"leaving":
            child.said_exiting()
        elif hear is not None:
            hear(line, child)

    child = ChildRunnerSupervisor(server, spec, on_frame, Diagnostics())
    return child


def end_of(code, *, act=lambda child: None, hear=None, tmp_path, log=b"", **options):
    path = tmp_path / "child.log"
    path.write_bytes(log)

    async def live():
        async with nursery() as made:
            child = supervised(made, code, hear, log=path, **options)
            end = await asyncio.wait_for(child.live(lambda: act(child)), 30)
            assert child._server.processes.registered("an-epoch") == []
            return end

    return asyncio.run(live())


def test_exited_means_code_0_after_the_word(tmp_path):
    said = READY + "assert channel.recv(100) == b'begin\\n'\nchannel.sendall(b'leaving\\n')"
    end = end_of(said, tmp_path=tmp_path)
    assert (end.outcome, end.status, end.exit_code, end.signal_name) == ("exited", 0, 0, None)
    assert end_of(READY, tmp_path=tmp_path).outcome == "crashed"
    assert end_of(said + "\nos._exit(3)", tmp_path=tmp_path).outcome == "crashed"


def test_the_outcome_given_to_stop_is_the_outcome(tmp_path):
    for outcome in ("cancelled", "timedOut", "claimLost", "exited", "crashed", "orphaned"):
        end = end_of(
            READY + "time.sleep(1000)",
            act=lambda child, outcome=outcome: (child.stop(outcome), child.kill("crashed")),
            tmp_path=tmp_path,
        )
        assert end.outcome == outcome
        assert end.signal_name in {"SIGTERM", "SIGKILL"}


def test_who_does_not_end_by_sigterm_is_killed(tmp_path):
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "time.sleep(1000)"
    begun = time.monotonic()
    end = end_of(code, act=lambda child: child.stop("cancelled"), tmp_path=tmp_path)
    assert (end.outcome, end.signal_name) == ("cancelled", "SIGKILL")
    assert time.monotonic() - begun >= 2


def test_stopping_what_is_not_there_yet_ends_it_when_it_is(tmp_path):
    async def live():
        async with nursery() as made:
            child = supervised(made, READY + "time.sleep(1000)", log=tmp_path / "log")
            child.stop("cancelled")
            return await asyncio.wait_for(child.live(lambda: pytest.fail("a stopped child was let in")), 30)

    end = asyncio.run(live())
    assert (end.outcome, end.signal_name) == ("cancelled", "SIGKILL")


def test_silence_is_waited_for_no_longer_than_the_handshake_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr("pi_workflows_nb.server.child_runner_supervisor.HANDSHAKE_SECONDS", 0.3)
    end = end_of("time.sleep(1000)", tmp_path=tmp_path)
    assert end.outcome == "crashed"
    assert "did not answer" in end.diagnostic


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (READY + "channel.sendall(b'x' * 2000)\ntime.sleep(1000)", "exceeds"),
        (READY + "channel.sendall(b'what?\\n')\ntime.sleep(1000)", "unheard-of"),
        ("channel.sendall(b'\\n' * 100)\ntime.sleep(1000)", "unheard-of"),
    ],
)
def test_a_breach_of_the_protocol_ends_the_child(tmp_path, code, said):
    def hear(line, child):
        raise ValueError("unheard-of " * 1000)

    end = end_of(code, hear=hear, tmp_path=tmp_path, max_frame_bytes=1000)
    assert (end.outcome, end.signal_name) == ("crashed", "SIGKILL")
    assert end.diagnostic.startswith("protocol: ")
    assert said in end.diagnostic
    assert len(end.diagnostic) < 1000


def test_what_is_kept_of_a_crash_is_bounded(tmp_path):
    end = end_of(READY + "os._exit(1)", tmp_path=tmp_path, log=b"begin" + b"x" * 200_000 + b"the end")
    assert len(end.diagnostic.encode()) == DIAGNOSTIC_BYTES
    assert end.diagnostic.endswith("the end")
    noted = Diagnostics()
    for _ in range(100):
        noted.add("é" * 1000)
    assert len(noted.text("more").encode()) <= DIAGNOSTIC_BYTES + len(noted.notes)


def test_nobody_saw_how_it_ended_when_the_nursery_ended(tmp_path):
    end = end_of(
        READY + "time.sleep(1000)",
        act=lambda child: os.kill(child._server.nursery.pid, signal.SIGKILL),
        tmp_path=tmp_path,
    )
    assert (end.status, end.exit_code, end.signal_name) == (None, None, None)


# -- registered processes


def run_of(server, function, **options):
    wf = pw.Workflow("one", start_at="node")
    wf.compute(function, name="node")
    return server.run(wf, **options)


def test_a_registered_process_ends_with_its_runner(state_file, tmp_path):
    def node(ctx):
        pid, identity = talks.escaped()
        talks.Talk().store.register_process(pid, identity)
        return pid

    with pw.start(database=state_file, project=tmp_path) as server:
        assert gone_within(10, run_of(server, node).wait(timeout=30).output)


def test_only_a_living_descendant_can_be_registered(state_file, tmp_path):
    def node(ctx):
        import os

        from pi_workflows_nb.runner.proc import start_identity
        from pi_workflows_nb.wire.errors import NotFoundError

        pid, identity = talks.escaped()
        store, refused = talks.Talk().store, []
        for number, name in [
            (ctx.input, start_identity(ctx.input)),
            (os.getppid(), start_identity(os.getppid())),
            (os.getpid(), start_identity(os.getpid())),
            (pid, identity + "1"),
            (2**30, identity),
        ]:
            try:
                store.register_process(number, name)
            except NotFoundError as error:
                refused.append(str(error))
        store.register_process(pid, identity)
        store.unregister_process(pid, identity)
        return refused

    with pw.start(database=state_file, project=tmp_path) as server:
        refused = run_of(server, node, input=os.getpid()).wait(timeout=30).output
        assert [said.partition(" ")[2].partition(" ")[2].split(",")[0] for said in refused] == [
            *["was not started by this runner"] * 3,
            *["is not the one of that start identity"] * 2,
        ]


def test_a_process_can_be_registered_after_the_claim_is_gone(state_file, tmp_path):
    told, go = tmp_path / "told", tmp_path / "go"

    def node(ctx):
        pid, identity = talks.escaped()
        talk = talks.Talk()
        child = {"pid": pid, "startIdentity": identity}
        go.touch()
        ctx.cancelled.wait(20)
        heard = [talk.ask(f"process.{word}", child)["outcome"] for word in ("register", "unregister")]
        told.write_text(" ".join(heard))

    with pw.start(database=state_file, project=tmp_path) as server:
        run = run_of(server, node)
        until = time.monotonic() + 20
        while not go.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        run.pause()
        while not told.exists() or not told.read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
    assert told.read_text() == "accepted accepted"


def test_a_registered_process_is_ended_by_the_next_server(state_file, tmp_path):
    told = tmp_path / "told"

    def node(ctx):
        pid, identity = talks.escaped()
        talks.Talk().store.register_process(pid, identity)
        told.write_text(str(pid))
        return talks.fall_silent()

    server = pw.start(database=state_file, project=tmp_path, server="process")
    pid = None
    try:
        run = run_of(server, node)
        until = time.monotonic() + 20
        while not told.exists() or not told.read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        pid = int(told.read_text())
        process = psutil.Process(server.status()["pid"])
        (made,) = process.children()
        # Whoever could end it meanwhile is stopped first, so that only the record of it is left.
        process.suspend()
        made.kill()
        (runner,) = [psutil.Process(number) for number in _runners(state_file)]
        assert gone_within(10, runner.pid)
        process.kill()
        assert alive(pid)
        with pw.start(database=state_file, project=tmp_path) as again:
            assert gone_within(5, pid)
            again.get_run(run.id).cancel()
    finally:
        if pid is not None and alive(pid):
            os.kill(pid, signal.SIGKILL)


def _runners(path):
    with closing(open_read_only(path, live=True)) as connection:
        return [pid for (pid,) in connection.execute("SELECT pid FROM run_workers WHERE status = 'running'")]


def test_a_number_that_another_process_has_now_is_not_signalled():
    registry = ProcessRegistry()
    identity = proc.start_identity(os.getpid())
    shared, _, ticks = identity.rpartition(":")
    registry.add("epoch", os.getpid(), identity)
    registry.register("epoch", os.getpid(), f"{shared}:{int(ticks) - 1}")
    asyncio.run(registry.end("epoch"))
    assert threading.main_thread().is_alive()
    registry.add("epoch", os.getpid(), f"{shared}:{int(ticks) - 1}")
    assert registry.is_stopped("epoch") is False
