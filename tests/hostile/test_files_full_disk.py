"""A disk that fills up under a run: one clear error for whoever asks, and the run goes on when there is room again."""

from __future__ import annotations

import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook import starting
from tests.hostile.disks import full, small_disk
from tests.hostile.surroundings import sound, until

NODES = 6


def steps(gate, ledger, size=30_000):
    """A chain of nodes that print, write a ledger and return much; the second one waits at the gate."""
    wf = pw.Workflow("fills", start_at="n0")

    def step(index):
        def body(ctx):
            import time

            print("x" * 5000)
            if index == 1:
                while not gate.exists():
                    time.sleep(0.01)
            with ledger.open("a") as file:
                file.write(f"{index}\n")
            return f"{index}" * size

        return body

    for index in range(NODES):
        wf.compute(name=f"n{index}")(step(index))
    for index in range(NODES - 1):
        wf.edge(f"n{index}", f"n{index + 1}")
    return wf


@pytest.mark.parametrize("size", [30_000, 1_500_000], ids=["inline", "transferred"])
def test_a_run_goes_on_when_there_is_room_again(tmp_path, placement, size):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    with small_disk(tmp_path / "disk", "40m") as disk:
        with pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement) as server:
            run = server.run(steps(gate, ledger, size))
            until(lambda: len(server.steps()) == 1)
            runner = server.runners().iloc[0].pid
            with full(disk):
                gate.touch()
                with pytest.raises(pw.StateUnavailableError, match=r"full|space"):
                    server.run(steps(gate, ledger, size), key="meanwhile")
                time.sleep(1.0)
                assert len(server.steps()) <= 2
                assert run.status == "running"
                assert server.status()["runners"] == 1
            assert len(run.wait(timeout=40).output) == size
            assert ledger.read_text().split() == [str(index) for index in range(NODES)]
            assert server.runners().pid.tolist() == [runner], "the same runner carried it"
            later = server.run(steps(gate, ledger, 10), key="meanwhile")
            assert later.wait(timeout=30).output == "5" * 10
        sound(disk / "s.sqlite")


def test_a_full_disk_refuses_a_start_and_leaves_nothing(tmp_path, placement):
    with small_disk(tmp_path / "disk", "2m") as disk:
        with full(disk):
            with pytest.raises(pw.StateFileError, match=r"full|space|disk") as told:
                pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement)
            assert "\n" not in str(told.value)
            assert sorted(path.name for path in disk.iterdir() if path.is_file()) == ["filler"]
        pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement).stop()
        before = (disk / "s.sqlite").read_bytes()
        with full(disk), pytest.raises(pw.PiWorkflowsError, match=r"full|space|disk"):
            pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement)
        assert (disk / "s.sqlite").read_bytes() == before
        with pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement) as server:
            assert server.status()["runs"] == {}
        sound(disk / "s.sqlite")


def test_a_server_that_stops_on_a_full_disk_loses_nothing(tmp_path, placement):
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    with small_disk(tmp_path / "disk") as disk:
        server = pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement)
        run = server.run(steps(gate, ledger))
        until(lambda: len(server.steps()) == 1)
        with full(disk):
            server.stop()
        gate.touch()
        with pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement) as server:
            assert server.get_run(run.id).wait(timeout=40).output == "5" * 30_000
        assert ledger.read_text().split() == [str(index) for index in range(NODES)]
        sound(disk / "s.sqlite")


def test_a_disk_that_is_full_for_longer_than_a_lease_costs_one_generation(tmp_path, placement, monkeypatch):
    connect = starting.connect
    monkeypatch.setattr(starting, "connect", lambda *given: connect(*given[:-1], {**given[-1], "runLeaseMs": 1500}))
    gate, ledger = tmp_path / "gate", tmp_path / "ledger"
    with small_disk(tmp_path / "disk") as disk:
        with pw.start(database=disk / "s.sqlite", project=tmp_path, server=placement) as server:
            run = server.run(steps(gate, ledger))
            until(lambda: len(server.steps()) == 1)
            with full(disk):
                gate.touch()
                time.sleep(2.5)
                assert server.leases(run=run.id).expires_at.max().timestamp() < time.time()
            assert run.wait(timeout=40).output == "5" * 30_000
            assert server.runners().generation.tolist() == [1, 2]
            until(lambda: server.runners().status.tolist()[-1] == "exited")
            assert server.steps().index.size == NODES
        # What was not committed was done again, and nothing else.
        done = ledger.read_text().split()
        assert done[0] == "0"
        assert sorted(set(done)) == [str(index) for index in range(NODES)]
        assert done.count("0") == 1
        sound(disk / "s.sqlite")
