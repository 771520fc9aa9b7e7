"""A kernel that is killed while a step of its session is pending, being answered, looked at or accepted."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing

import pytest

from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify

PROGRAM = """
import pathlib, sys, time
import pi_workflows_nb as pw

folder, placement, wanted = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def opened(name):
    (folder / f"at-{name}").touch()
    while not (folder / "gate").exists() and wanted == name:
        time.sleep(0.005)

wf = pw.Workflow("asks", start_at="who")

def looked_at(value):
    opened("validating")

wf.agent(lambda ctx: "who?", name="who", validate=looked_at)

@wf.compute
def after(ctx):
    opened("accepted")
    return ctx.outputs["who"]

wf.edge("who", "after")

def answer(request):
    with open(folder / "calls", "a") as calls:
        calls.write("call\\n")
    opened("answering")
    return "me"

if __name__ == "__main__":
    server = pw.start(database=folder / "s.sqlite", project=folder, server=placement, session="the notebook")
    if wanted != "pending":
        server.session.agent(answer)
    run = server.run(wf, key="once")
    if wanted == "pending":
        run.wait(timeout=30)
        (folder / "at-pending").touch()
        time.sleep(60)
    print(run.wait(timeout=30, until="end").output)
    server.stop()
"""
CALLS = {"pending": 1, "answering": 2, "validating": 1, "accepted": 1}


def begin(folder, placement, wanted):
    return subprocess.Popen(
        [sys.executable, str(folder / "program.py"), str(folder), placement, wanted],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("wanted", list(CALLS))
def test_the_step_is_answered_once_and_the_agent_asked_again_only_when_its_turn_was_lost(tmp_path, placement, wanted):
    (tmp_path / "program.py").write_text(PROGRAM)
    kernel = begin(tmp_path, placement, wanted)
    limit = time.monotonic() + 30
    while not (tmp_path / f"at-{wanted}").exists():
        assert time.monotonic() < limit
        time.sleep(0.005)
    kernel.kill()
    kernel.wait()
    kernel.stdout.close()
    (tmp_path / "gate").touch()
    kernel = begin(tmp_path, placement, "nothing")
    assert kernel.communicate(timeout=60)[0] == "me\n"
    assert (tmp_path / "calls").read_text().count("call") == CALLS[wanted]
    with closing(open_read_only(tmp_path / "s.sqlite")) as connection:

        def rows(query):
            return connection.execute(query).fetchall()

        assert [found for found in verify(connection) if found.severity == "error"] == []
        assert rows("SELECT count(*) FROM interactive_submissions WHERE outcome = 'accepted'") == [(1,)]
        assert rows("SELECT count(*) FROM workflow_messages WHERE status = 'pending'") == [(0,)]
        turns = rows("SELECT stop_reason FROM workflow_turns ORDER BY started_at")
        lost = sum(reason == "lost" for (reason,) in turns)
        assert rows("SELECT unproductive_turn_ends FROM interactive_requests") == [(CALLS[wanted] - 1,)]
        assert (len(turns), lost >= CALLS[wanted] - 1) == (CALLS[wanted], True)
