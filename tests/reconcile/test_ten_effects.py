"""Ten effects one after the other, and death inside the fifth, right after it hit the disk.

`--long` plays each death of a pass a hundred times.
"""

from __future__ import annotations

import os
import signal
import textwrap

import pytest

from tests.kernels import kernel
from tests.reconcile.conftest import HEAD

TEN = """
    m = pw.ResourceManager("ten")

    @m.reconcile
    def reconcile(ctx, resource):
        states, world, died = {{}}, here / f"world-{{resource.key}}", here / f"died-{{resource.key}}"

        def happened(key):
            return world.exists() and key in world.read_text().split()

        for number in range(1, 11):
            key = f"k{{number}}"

            def look(key=key):
                return pw.applied("found") if happened(key) else pw.not_applied()

            def append(key=key):
                descriptor = os.open(world, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(descriptor, f"{{key}}\\n".encode())
                os.fsync(descriptor)
                os.close(descriptor)
                if key == "k5" and not died.exists():
                    died.write_text(str(os.getpid()))
                    {death}

            try:
                effect = ctx.effects.ensure(key, "append", {{"n": number}}, observe={observe}, apply=append)
            except pw.ConflictError:
                return ctx.requeue(status={{"states": states}})
            states[key] = effect.state
            if effect.state == "indeterminate":
                return ctx.settled(status={{"states": states}}, conditions=[pw.condition_unknown("Ready", "InDoubt")])
        return ctx.settled(status={{"states": states}}, conditions=[pw.condition_true("Ready", "AllTen")])
"""
KEYS = [f"k{number}" for number in range(1, 11)]
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def keys(long_form):
    """The resources that die once each, one after the other."""
    return [f"r{number}" for number in range(100 if long_form else 1)]


def world(folder, key):
    return (folder / f"world-{key}").read_text().split()


@pytest.mark.timeout(1800)
def test_an_observable_one_happens_once_and_nothing_is_repeated(server, write, keys):
    write("ten", TEN.format(death=KILL, observe="look"))
    for key in keys:
        resource = server.resources.apply("ten", key).wait_for("Ready", timeout=60)
        assert (server.project / f"died-{key}").exists()
        assert world(server.project, key) == KEYS
        assert list(resource.effects()["status"]) == ["applied"] * 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("decision", ["confirm", "retry"])
def test_one_that_nobody_can_observe_is_left_to_a_person(server, write, until, keys, decision):
    write("ten", TEN.format(death=KILL, observe="None"))
    for key in keys:
        resource = server.resources.apply("ten", key)
        until(lambda resource=resource: "Ready" in resource.conditions)
        resource.wait_settled(60)
        assert world(server.project, key) == KEYS[:5]
        assert sorted(resource.effects()["status"]) == ["ambiguous"] + ["applied"] * 4
        resource.reconcile()
        resource.wait_settled(60)
        assert world(server.project, key) == KEYS[:5], "finished ones are not repeated, nor the one in doubt"
        getattr(server.get_effect(server.effects(status="ambiguous").index[0]), decision)()
        resource.wait_for("Ready", timeout=60)
        assert world(server.project, key) == KEYS[:5] + (["k5"] if decision == "retry" else []) + KEYS[5:]


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
@pytest.mark.parametrize("observe", ["look", "None"])
def test_so_it_is_when_whoever_serves_is_killed(tmp_path, placement, observe, until, rows_of):
    """The kernel, or the server's process, dies inside the fifth; the next start goes on."""
    folder = tmp_path / ".pi" / "resource-managers"
    folder.mkdir(parents=True)
    code = HEAD + textwrap.dedent(TEN.format(death="time.sleep(1000)", observe=observe))
    (folder / "ten.resource_manager.py").write_text(code)
    start = f"import pi_workflows_nb as pw\nserver = pw.start(database='s.sqlite', server={placement!r})"
    with kernel(tmp_path) as first:
        first.run(f"{start}\nr = server.resources.apply('ten', 'one')")
        until((tmp_path / "died-one").exists)
        runner = int(until((tmp_path / "died-one").read_text))
        pid = int(first.run("print(server.status()['pid'])"))
        first.kill() if placement == "thread" else os.kill(pid, signal.SIGKILL)
    with kernel(tmp_path) as second:
        second.run(f"{start}\nr = server.resources.get('ten', 'one')")
        if observe == "look":
            second.run("r.wait_for('Ready', timeout=60)")
            assert world(tmp_path, "one") == KEYS
        else:
            second.run("import time\nwhile 'Ready' not in r.conditions: time.sleep(0.02)")
            assert world(tmp_path, "one") == KEYS[:5]
            second.run("server.get_effect(server.effects(status='ambiguous').index[0]).confirm()")
            second.run("r.wait_for('Ready', timeout=60)")
            assert world(tmp_path, "one") == KEYS
        look = "print(len(server.verify()), list(server.effects()['status']) == ['applied'] * 10)"
        assert second.run(look) == "0 True\n"
        second.run("server.stop()")
    until(lambda: not os.path.exists(f"/proc/{runner}"))
