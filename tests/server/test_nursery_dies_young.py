"""A nursery that is killed while its server starts is replaced, as one that is killed later is."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

import pi_workflows_nb as pw


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2])
def test_a_nursery_killed_during_the_start_is_replaced(state_file, tmp_path, delay):
    wf = pw.Workflow("one", start_at="a")
    wf.compute(lambda ctx: "done", name="a")
    killed = []

    def hunt():
        give_up = time.monotonic() + 30
        while not killed and time.monotonic() < give_up:
            for nursery in psutil.Process().children():
                time.sleep(delay)
                nursery.kill()
                killed.append(nursery.pid)
                return

    hunter = threading.Thread(target=hunt)
    hunter.start()
    with pw.start(database=state_file, project=tmp_path) as server:
        hunter.join()
        assert server.run(wf).wait(timeout=20).output == "done"
    assert killed
