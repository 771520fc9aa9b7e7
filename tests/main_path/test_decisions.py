"""Decisions of a person: asked with choices, taken in the inbox or by their deadline, never by an agent."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

import pi_workflows_nb as pw


def until(true, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.01)
    return found


CHOICES = pw.human_choices(
    yes=pw.choice("Yes"),
    replan=pw.choice("Replan", input=pw.text_input("instructions", prompt="what instead?", max_length=40)),
)


def deciding(seconds=None, name="ships"):
    wf = pw.Workflow(name, start_at="ship")
    on_timeout = None if seconds is None else pw.after(timedelta(seconds=seconds), {"choice": "yes"})

    @wf.human_decision(choices=CHOICES, on_timeout=on_timeout)
    def ship(ctx):
        return {
            "title": "Ship it",
            "subject": {"n": ctx.input},
            "presentation": {"summary": f"ship {ctx.input}?", "blocks": [{"type": "paragraph", "text": "all green"}]},
        }

    wf.compute(lambda ctx: ctx.outputs["ship"], name="shipped")
    wf.compute(lambda ctx: ctx.outputs["ship"], name="replanned")
    wf.human_decision_edge("ship", {"yes": "shipped", "replan": "replanned"})
    return wf


def asked(server):
    until(lambda: len(server.inbox()) == 1)
    return server.inbox()[0]


def test_a_person_decides_in_the_inbox(server, rows):
    run = server.run(deciding(), 7).wait(timeout=30)
    assert (run.status, server._link.view(run.id)["needsPerson"]) == ("waiting", True)
    decision = server.inbox()["ship"]
    assert (decision.title, decision.prompt, decision.default) == ("Ship it", "ship 7?", None)
    assert "all green" in repr(decision)
    assert "needs instructions: what instead?" in repr(decision)
    with pytest.raises(pw.WorkflowInputError, match="needs the text 'instructions': what instead"):
        decision.answer("replan")
    with pytest.raises(pw.ConflictError, match="a person's decision"):
        run.answer("yes")
    decision.answer("replan", "in May")
    assert run.wait(timeout=30).output == {"choice": "replan", "input": {"instructions": "in May"}}
    with pytest.raises(pw.ConflictError, match="taken already"):
        decision.answer("yes")
    assert len(server.inbox()) == 0
    assert list(server.decisions().provenance) == ["human"]
    assert rows("SELECT count(*) FROM continuations") == [(1,)]


def test_the_default_counts_after_the_deadline(server):
    run = server.run(deciding(0.3), 7).wait(timeout=30, until="end")
    assert run.output == {"choice": "yes"}
    assert list(server.decisions().provenance) == ["timeout_policy"]


def test_a_deadline_that_passes_while_nobody_serves_counts_at_the_next_start(tmp_path, placement):
    database = tmp_path / "s.sqlite"
    with pw.start(database=database, project=tmp_path, server=placement, session="s") as server:
        run = server.run(deciding(1), 7).wait(timeout=30)
    time.sleep(1)
    with pw.start(database=database, project=tmp_path, server=placement, session="s") as server:
        assert server.get_run(run.id).wait(timeout=30, until="end").output == {"choice": "yes"}


def test_an_agent_never_decides(server):
    heard = []

    @server.session.agent
    def answer(request):
        try:
            server.inbox()["ship"].answer("yes")
        except pw.ConflictError as error:
            heard.append(str(error))
        return "done"

    run = server.run(deciding(), 7)
    asked(server)
    wf = pw.Workflow("asks", start_at="who")
    wf.agent(lambda ctx: "decide for me", name="who")
    assert server.run(wf).wait(timeout=30).output == "done"
    assert "an agent can never answer it" in heard[0]
    assert run.status == "waiting"
    asked(server).answer("yes")
    assert run.wait(timeout=30).output == {"choice": "yes"}


def test_a_headless_run_cannot_ask_a_person(server):
    with pytest.raises(pw.SessionRequiredError):
        server.run(deciding(), 7, mode="headless", agent=lambda request: 1)


@pytest.mark.parametrize("rounds", [3])
def test_of_two_people_an_agent_and_a_deadline_one_wins(server, request, rounds, rows):
    if request.config.getoption("--long"):
        rounds = 500
    for number in range(rounds):
        run = server.run(deciding(0.05, f"ships-{number}"), number)
        until(lambda run=run: len(server.decisions(run=run.id)) == 1)
        (decision_id,) = server.decisions(run=run.id).index
        outcomes = []

        def take(who, choice, number=number, decision_id=decision_id, outcomes=outcomes):
            payload = {"actor": "agent" if who == "agent" else "human", "decisionId": decision_id}
            response = {"choice": choice} if choice == "yes" else {"choice": choice, "input": who}
            time.sleep((number * 7 + len(who)) % 10 / 100)
            said = server._connection.request("decision.answer", {**payload, "response": response})
            outcomes.append((who, said.outcome))

        takers = [
            threading.Thread(target=take, args=("agent", "yes")),
            threading.Thread(target=take, args=("anna", "replan")),
            threading.Thread(target=take, args=("ben", "replan")),
        ]
        for one in takers:
            one.start()
        for one in takers:
            one.join()
        output = run.wait(timeout=30, until="end").output
        won = [who for who, outcome in outcomes if outcome == "accepted"]
        assert "agent" not in won
        expected = {"choice": "replan", "input": {"instructions": won[0]}} if won else {"choice": "yes"}
        assert (len(won) <= 1, output) == (True, expected)
    assert rows("SELECT count(*) FROM continuations") == [(rounds,)]
    assert rows("SELECT count(*) FROM human_decision_resolutions WHERE outcome = 'accepted'") == [(rounds,)]
    assert rows("SELECT count(*) FROM human_decision_submissions WHERE outcome <> 'won'") == [(0,)]
