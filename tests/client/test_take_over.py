"""When a server dies its clients serve in its place: one wins, the others attach, and all objects go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

import pi_workflows_nb as pw
from tests.hostile.surroundings import sound, until

KERNEL = """
import json, os, sys, time, threading
import pi_workflows_nb as pw
server = pw.start(database=sys.argv[1], project=sys.argv[2], server=sys.argv[3])

def fork():
    child = __import__("multiprocessing").get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    return child.pid

print(json.dumps([server.placement, server.status()["pid"]]), flush=True)
for line in sys.stdin:
    try:
        print(json.dumps(eval(line)), flush=True)
    except pw.PiWorkflowsError as error:
        print(json.dumps(type(error).__name__), flush=True)
os._exit(0)
"""


class Other:
    """Another kernel, as far as the server is concerned."""

    def __init__(self, folder, placement):
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL, str(folder / "s.sqlite"), str(folder), placement],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.placement, self.server_pid = json.loads(self.process.stdout.readline())

    def begin(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def said(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, expression):
        self.begin(expression)
        return self.said()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait(20)  # a second time gives the same


@pytest.fixture(params=["thread", "process"])
def placement(request):
    return request.param


@pytest.fixture
def others(tmp_path, placement):
    made = []

    def start(where=placement):
        made.append(Other(tmp_path, where))
        return made[-1]

    yield start
    for one in made:
        one.end()


def kill_server(owner, placement):
    if placement == "thread":
        owner.kill()
    else:
        os.kill(owner.server_pid, signal.SIGKILL)


def test_of_several_clients_one_takes_over(tmp_path, placement, others):
    owner = others()
    clients = [others() for _ in range(3)]
    died = time.monotonic()
    kill_server(owner, placement)
    said = [one.ask('[server.status()["pid"], server.status()["epoch"], server.placement]') for one in clients]
    print(f"\n{placement}: three clients were served again {time.monotonic() - died:.2f} s after the death")
    assert len({pid for pid, _, _ in said}) == 1
    assert {epoch for _, epoch, _ in said} == {2}
    places = sorted(place for *_, place in said)
    assert places == (["kernel", "kernel", "thread"] if placement == "thread" else ["process"] * 3)
    # Once more, with those who are left.
    clients = [one for one, (_, _, place) in zip(clients, said, strict=True) if place != "thread"]
    winner = said[0][0]
    os.kill(winner, signal.SIGKILL)
    assert {one.ask('server.status()["epoch"]') for one in clients} == {3}
    clients[0].ask("server.stop()")
    sound(tmp_path / "s.sqlite")


def test_a_request_under_way_is_sent_again_and_done_once(tmp_path, placement, others, gated):
    owner = others()
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as server:
        run = server.run(gated)
        until(lambda: run.status == "running")
        owner_pid = owner.server_pid
        os.kill(owner_pid, signal.SIGSTOP)
        given = []
        asking = [
            threading.Thread(target=lambda: given.append(server.run(gated, "x" * 2_000_000))),
            threading.Thread(target=lambda: given.append(run.pause())),
        ]
        for one in asking:
            one.start()
        time.sleep(0.3)
        assert given == []
        os.kill(owner_pid, signal.SIGKILL)
        if placement == "thread":
            owner.kill()
        for one in asking:
            one.join(30)
        assert len(given) == 2
        assert run.status == "paused"
        assert len(server.runs()) == 2
        gated.gate.touch()
        run.resume()
        assert {one.wait(timeout=30).output for one in given} == {2}
        assert len(server.sql("SELECT 1 FROM host_commands WHERE operation = 'run.start'")) == 2
        server.stop()
    sound(tmp_path / "s.sqlite")


def test_who_follows_a_run_follows_it_on(tmp_path, placement, others, gated):
    owner = others()
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as server:
        run = server.run(gated)
        until(lambda: run.status == "running")
        seen, left = [], []
        end = server._connection.subscribe(run.id, seen.append)
        stop = server._connection.subscribe(run.id, left.append)
        stop()
        kill_server(owner, placement)
        until(lambda: server.status()["epoch"] == 2)
        heard = len(left)
        gated.gate.touch()
        until(lambda: seen[-1]["status"] == "completed")
        assert len(left) == heard
        end()
        server.stop()
    sound(tmp_path / "s.sqlite")


def test_a_server_that_was_stopped_stays_so(tmp_path, placement, others):
    owner, client = others(), others()
    owner.ask("server.stop()")
    until(lambda: client.ask("server.alive") is False)
    assert client.ask("server.status()") == "ServerStoppedError"
    assert client.ask("server.stop()") is None
    time.sleep(0.5)
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as server:
        assert server.status()["epoch"] == 2, "nobody took over"


@pytest.mark.parametrize("placement", ["thread"])
def test_the_owner_that_ends_hands_over_and_whoever_only_attached_leaves(tmp_path, placement, others):
    owner, client = others(), others()
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as server:
        assert server.placement == "kernel"
        assert "another kernel" in repr(server)
    assert owner.ask("server.alive"), "the end of a with statement stops what it started only"
    assert not server.alive
    owner.begin("sys.exit(0)")
    owner.end()
    until(lambda: client.ask("server.placement") == "thread")
    assert client.ask('server.status()["epoch"]') == 2
    client.ask("server.stop()")


@pytest.mark.parametrize("placement", ["thread"])
def test_a_forked_copy_of_the_owner_hides_its_death_from_nobody(tmp_path, placement, others):
    owner, client = others(), others()
    copy = owner.ask("fork()")
    died = time.monotonic()
    owner.kill()
    assert psutil.pid_exists(copy)
    assert client.ask('server.status()["epoch"]') == 2
    print(f"\nnoticed, and served again, after {time.monotonic() - died:.2f} s")
    psutil.Process(copy).kill()
    client.ask("server.stop()")


@pytest.mark.parametrize("placement", ["thread"])
def test_where_nobody_can_serve_it_is_told(tmp_path, placement, others):
    owner, client = others(), others()
    (tmp_path / "s.sqlite").rename(tmp_path / "elsewhere")
    (tmp_path / "s.sqlite").write_text("no state file")
    owner.kill()
    assert client.ask("server.status()") == "ServerStoppedError"
    assert client.ask("server.alive") is False
