"""Cells that fork: the children keep nothing of the server, and after a SIGKILL the next kernel takes over at once."""

from __future__ import annotations

import contextlib
import json
import os
import time

import psutil
import pytest

from tests.hostile.surroundings import sound, until
from tests.kernels import kernel

DEFINE = """
import json, multiprocessing, os, pathlib, sys, time
import pi_workflows_nb as pw

children = pathlib.Path("children")
children.mkdir(exist_ok=True)

def linger():
    (children / str(os.getpid())).touch()
    time.sleep(600)

def fork():
    pid = os.fork()
    if pid == 0:
        linger()
        os._exit(0)

def process(method):
    # What spawn imports is no cell: it gets a function of the standard library.
    one = multiprocessing.get_context(method).Process(target=linger if method == "fork" else time.sleep,
                                                      args=() if method == "fork" else (600,), daemon=False)
    one.start()
    (children / str(one.pid)).touch()

def hatch():
    fork()
    process("fork")
    process("spawn")

wf = pw.Workflow("job", start_at="one")

@wf.compute
def one(ctx):
    pathlib.Path("began").touch()
    while not pathlib.Path("gate").exists():
        time.sleep(0.01)
    return "done"
"""
START = """
began = time.monotonic()
server = pw.start(database="s.sqlite", server=PLACEMENT)
run = server.run(wf, key="job")
print(json.dumps([time.monotonic() - began, server.status()["epoch"], server.status()["pid"]]))
"""


@pytest.fixture
def survivors(tmp_path):
    """The children of killed kernels, which are nobody's to end but this test's."""
    yield lambda: [int(path.name) for path in (tmp_path / "children").iterdir()]
    for path in (tmp_path / "children").iterdir():
        for one in [psutil.Process(int(path.name))] if psutil.pid_exists(int(path.name)) else []:
            one.kill()
    for one in ours(tmp_path):
        with contextlib.suppress(psutil.Error):  # ends with those above
            if "multiprocessing" in " ".join(one.cmdline()):
                one.kill()


def ours(folder):
    """Living processes that were started below this folder's kernels."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.pid != os.getpid() and one.environ().get("IPYTHONDIR") == str(folder / "ipython"):
                found.append(one)
        except psutil.Error:
            continue
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]


def of_the_server(folder):
    """Nurseries, runners and server processes, by what their command line says."""
    return [one for one in ours(folder) if "pi_workflows_nb" in " ".join(one.cmdline())]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_children_of_a_killed_kernel_keep_nothing_of_its_server(tmp_path, placement, when, survivors):
    start = START.replace("PLACEMENT", repr(placement))
    with kernel(tmp_path) as jupyter:
        jupyter.run(DEFINE)
        if when == "before":
            jupyter.run("hatch()")
        _, epoch, server_pid = json.loads(jupyter.run(start))
        until((tmp_path / "began").exists)
        if when == "after":
            jupyter.run("hatch()")
        until(lambda: len(survivors()) == 3)
        kernel_pid = jupyter.pid
        jupyter.kill()
        if placement == "process":
            psutil.Process(server_pid).kill()
        until(lambda: of_the_server(tmp_path) == [], 2)
    # A new one and no restart: the children hold the ports of the old one, too.
    with kernel(tmp_path) as jupyter:
        assert all(psutil.pid_exists(pid) for pid in survivors()), "the children of the killed kernel still live"
        jupyter.run(DEFINE)
        (tmp_path / "gate").touch()
        took, next_epoch, next_pid = json.loads(jupyter.run(start))
        assert took < 2
        assert next_epoch == epoch + 1
        assert next_pid not in (server_pid, kernel_pid)
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        assert jupyter.run("print(len(server.runs()), len(server.verify()))") == "1 0\n"
        jupyter.run("server.stop()")
        until(lambda: of_the_server(tmp_path) == [])
    sound(tmp_path / "s.sqlite")


def test_a_forked_copy_of_the_kernel_refuses_to_work_and_harms_nothing(tmp_path, placement):
    with kernel(tmp_path) as jupyter:
        jupyter.run(DEFINE)
        jupyter.run(START.replace("PLACEMENT", repr(placement)))
        said = jupyter.run(
            """
reading, writing = os.pipe()
if server.placement == "process":
    socket = os.readlink(f"/proc/self/fd/{server._connection._present._socket.fileno()}")
else:
    socket = os.readlink(f"/proc/self/fd/{server._connection._present._thread.server.nursery._control.fileno()}")

def held():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}") == socket
        except OSError:
            pass
    return found

assert held() == 1
pid = os.fork()
if pid == 0:
    told = []
    for act in (lambda: server.run(wf), lambda: server.status(), lambda: run.pause(), lambda: server.stop()):
        try:
            told.append(repr(act()))
        except BaseException as error:
            told.append(type(error).__name__)
    os.write(writing, json.dumps([told, server.alive, len(server.runs()), held()]).encode())
    os._exit(0)
os.waitpid(pid, 0)
print(os.read(reading, 10000).decode())
"""
        )
        told, alive, runs, held = json.loads(said)
        assert told[:3] == ["ServerStoppedError"] * 3
        assert not alive
        assert runs == 1
        assert held == 0, "the copy keeps the way to the server open"
        (tmp_path / "gate").touch()
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        assert jupyter.run("print(server.status()['epoch'], len(server.verify()))") == "1 0\n"
        jupyter.run("server.stop()")
    sound(tmp_path / "s.sqlite")


def test_a_cell_may_use_a_pool_beside_a_run(tmp_path, placement):
    with kernel(tmp_path) as jupyter:
        jupyter.run(DEFINE)
        jupyter.run(START.replace("PLACEMENT", repr(placement)))
        for method in ("fork", "spawn"):
            began = time.monotonic()
            jupyter.run(
                f"with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
                "    assert pool.map(abs, range(-20, 0)) == list(range(20, 0, -1))"
            )
            assert time.monotonic() - began < 20
        (tmp_path / "gate").touch()
        assert jupyter.run("print(run.wait(timeout=30).output)").endswith("done\n")
        jupyter.run("server.stop()")
    sound(tmp_path / "s.sqlite")
