"""An effect that may have happened waits for a person, who confirms it or has it applied again."""

from __future__ import annotations

import os
import signal

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.wire.errors import ConflictError, NotFoundError


@pytest.fixture
def server(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path) as started:
        yield started


def in_doubt(folder):
    wf = pw.Workflow("in-doubt", start_at="send")
    ledger = str(folder / "ledger.txt")

    @wf.action(effect=pw.manual_effect("letter.send", request=lambda ctx: {"to": ctx.input}))
    def send(ctx):
        with open(ledger, "a+") as lines:
            lines.seek(0)
            first = not lines.read()
            lines.write("sent\n")
        if first:
            os.kill(os.getpid(), signal.SIGKILL)
        return "sent"

    @wf.compute
    def done(ctx):
        return ctx.outputs.get("send", "nothing")

    wf.edge("send", "done")
    return wf


def waiting(server, tmp_path):
    run = server.run(in_doubt(tmp_path), "Ada").wait(timeout=30)
    assert run.status == "ambiguous"
    (effect_id,) = server.effects(status="ambiguous").index
    return run, server.get_effect(effect_id)


def test_an_effect_in_doubt_can_be_confirmed(server, tmp_path):
    run, effect = waiting(server, tmp_path)
    assert (effect.status, effect.type, effect.run_id) == ("ambiguous", "letter.send", run.id)
    assert effect.request["request"] == {"to": "Ada"}
    assert "confirm()" in repr(effect)
    assert "ambiguous effects" in repr(server)
    assert effect.confirm(external_ref="letter 7") is effect
    assert (effect.status, effect.external_ref) == ("applied", "letter 7")
    run.wait(timeout=30, until="end")
    assert (tmp_path / "ledger.txt").read_text() == "sent\n"
    with pytest.raises(ConflictError):
        effect.retry()


def test_an_effect_in_doubt_can_be_applied_again(server, tmp_path):
    run, effect = waiting(server, tmp_path)
    effect.retry()
    assert run.wait(timeout=30, until="end").output == "sent"
    assert effect.status == "applied"
    assert effect.result == "sent"
    assert len(effect.attempts()) == 2


def test_an_effect_reads_without_a_server(filled):
    state = open_state(filled)
    (effect_id,) = state.effects(run="run-done").index
    effect = state.get_effect(effect_id)
    assert (effect.status, effect.result, effect.error) == ("applied", {"id": 7}, None)
    assert "ticket" in effect._repr_html_()
    assert "confirm" not in repr(effect)
    assert set(effect._repr_mimebundle_()) == {"text/plain", "text/html"}
    with pytest.raises(NotFoundError, match="no effect 'x'"):
        state.get_effect("x")
