"""A source whose code does not come back when it is loaded ends its runner, and after three of them parks its run."""

from __future__ import annotations

import os

import pi_workflows_nb as pw
from tests.hostile.nodes import Host
from tests.hostile.surroundings import until


class Slow:
    """Takes for ever to come to life where a file is."""

    def __init__(self, gate):
        self.gate = str(gate)

    def __reduce__(self):
        return eval, (f"__import__('time').sleep(600 * __import__('os').path.exists({self.gate!r}))",)


def test_it_is_given_up_and_goes_on_when_it_loads(tmp_path, state_folder, placement):
    gate = tmp_path / "gate"
    gate.touch()
    host = Host(tmp_path / "host", state_folder, placement, loadingSeconds=1)
    try:
        slow = Slow(gate)
        wf = pw.Workflow("slow", start_at="only")
        wf.compute(lambda ctx: slow is None, name="only")
        run = host.run(wf)
        until(
            lambda: "runnerNoProgress" in str(host.rows("SELECT error_code FROM run_queue WHERE run_id = ?", run.id)),
            40,
        )
        view = host.view(run)
        assert "its source was not loaded within 1 s" in view["reason"]
        assert view["controls"] == ["cancel", "resume"]
        assert host.runners(run) == ["crashed"] * 3
        os.unlink(gate)
        run.resume()
        assert run.wait(timeout=30).output is True
        host.check_unnoticed(0)
    finally:
        host.close()
