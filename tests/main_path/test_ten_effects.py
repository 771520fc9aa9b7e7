"""Ten actions one after the other, and death inside the fifth, right after it hit the disk.

`--long` plays each death a hundred times.
"""

from __future__ import annotations

import os
import signal

import pytest

import pi_workflows_nb as pw
from tests.hostile.surroundings import until
from tests.kernels import kernel

TEN = """
import os, pathlib, signal, time
import pi_workflows_nb as pw

def ten(folder, recovery, death):
    wf = pw.Workflow("ten", start_at="n1")

    def act(ctx):
        key = ctx.effect.idempotency_key
        with open(folder / "calls", "a") as calls:
            print(ctx.node_id, key, file=calls, flush=True)
        world = folder / "world"
        if recovery is pw.manual_effect or not world.exists() or key not in world.read_text().split():
            descriptor = os.open(world, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(descriptor, f"{key}\\n".encode())
            os.fsync(descriptor)
            os.close(descriptor)
        if ctx.node_id == "n5" and not (folder / "died").exists():
            (folder / "died").write_text(str(os.getpid()))
            death()
        return ctx.node_id

    for number in range(1, 11):
        wf.action(act, name=f"n{number}", effect=recovery("append"))
        if number > 1:
            wf.edge(f"n{number - 1}", f"n{number}")
    return wf

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def held():
    time.sleep(1000)
"""
SHORT = {("thread", "manual_effect"), ("process", "idempotent_effect")}
NODES = [f"n{number}" for number in range(1, 11)]


@pytest.fixture
def made(tmp_path, long_form):
    """The cell above, and a folder for each trial."""
    cell = {"__name__": "__main__"}
    exec(TEN, cell)

    def trials():
        for number in range(100 if long_form else 1):
            folder = tmp_path / str(number)
            folder.mkdir()
            yield folder

    return cell, trials


def world(folder):
    return (folder / "world").read_text().split()


def calls(folder):
    """The nodes in the order in which they were called, and how many keys each had."""
    lines = [line.split() for line in (folder / "calls").read_text().splitlines()]
    assert all(len({key for node, key in lines if node == each}) == 1 for each in {node for node, _ in lines})
    return [node for node, _ in lines]


@pytest.mark.timeout(1800)
def test_an_idempotent_one_is_called_again_with_its_key_and_recorded_once(server, made):
    cell, trials = made
    for folder in trials():
        run = server.run(cell["ten"](folder, pw.idempotent_effect, cell["killed"]))
        assert run.wait(timeout=60).status == "completed"
        assert calls(folder) == [*NODES[:5], *NODES[4:]], "no finished step is repeated"
        assert len(world(folder)) == len(set(world(folder))) == 10
        assert run.effects()["status"].tolist() == ["applied"] * 10
        assert sorted(run.effects()["attempt_count"]) == [1] * 9 + [2]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("decision", ["confirm", "retry"])
def test_a_manual_one_is_ambiguous_and_left_to_a_person(server, made, decision):
    cell, trials = made
    for folder in trials():
        run = server.run(cell["ten"](folder, pw.manual_effect, cell["killed"]))
        until(lambda run=run: "ambiguous" in set(run.effects()["status"]))
        run.wait(timeout=60)
        assert calls(folder) == NODES[:5]
        assert sorted(run.effects()["status"]) == ["ambiguous"] + ["applied"] * 4
        effect = server.get_effect(run.effects(status="ambiguous").index[0])
        getattr(effect, decision)()
        assert run.wait(timeout=60, until="end").status == "completed"
        assert calls(folder) == NODES[:5] + (["n5"] if decision == "retry" else []) + NODES[5:]
        assert len(world(folder)) == 10 + (decision == "retry")
        assert run.effects()["status"].tolist() == ["applied"] * 10


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
@pytest.mark.parametrize("recovery", ["idempotent_effect", "manual_effect"])
def test_so_it_is_when_whoever_serves_is_killed(tmp_path, long_form, placement, recovery):
    """The kernel, or the server's process, dies inside the fifth; the next start goes on."""
    if not long_form and (placement, recovery) not in SHORT:
        pytest.skip("the other two are played with --long")
    start = f"import pi_workflows_nb as pw\nserver = pw.start(database='s.sqlite', server={placement!r})"
    define = f"{TEN}\nrun = server.run(ten(pathlib.Path.cwd(), pw.{recovery}, held), key='ten')"
    with kernel(tmp_path) as first:
        first.run(f"{start}\n{define}")
        until(lambda: (tmp_path / "died").exists() and (tmp_path / "died").read_text())
        pid = int(first.run("print(server.status()['pid'])"))
        first.kill() if placement == "thread" else os.kill(pid, signal.SIGKILL)
    with kernel(tmp_path) as second:
        second.run(f"{start}\nrun = server.get_run(server.runs().index[0])")
        again = ["n5"]
        if recovery == "manual_effect":
            second.run("run.wait(timeout=60)")
            assert second.run("print(sorted(run.effects()['status']))") == f"{['ambiguous'] + ['applied'] * 4}\n"
            assert calls(tmp_path) == NODES[:5]
            second.run("server.get_effect(run.effects(status='ambiguous').index[0]).confirm()")
            again = []
        second.run("run.wait(timeout=60, until='end')")
        assert calls(tmp_path) == NODES[:5] + again + NODES[5:]
        assert len(world(tmp_path)) == len(set(world(tmp_path))) == 10
        look = "print(run.status, len(server.verify()), list(run.effects()['status']) == ['applied'] * 10)"
        assert second.run(look) == "completed 0 True\n"
        second.run("server.stop()")
