"""What nodes ask their session: answered by a person, by the session's agent, refused, reminded, given up."""

from __future__ import annotations

import threading
import time

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import NotJsonError


def until(true, seconds=30.0):
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.01)
    return found


def whole(value):
    if type(value) is not int:
        raise ValueError("give a whole number")
    return 2 * value


def asking(name="asks", **more):
    wf = pw.Workflow(name, start_at="who")
    wf.agent(lambda ctx: f"how many {ctx.input}?", name="who", expected_output="a number", **more)
    wf.compute(lambda ctx: ctx.outputs["who"], name="came")
    wf.compute(lambda ctx: ctx.results["who"]["error"], name="failed")
    wf.edge("who", switch="$result.outcome", cases={"ok": "came", "failed": "failed"})
    return wf


def asked(server):
    until(lambda: len(server.inbox()) == 1)
    return server.inbox()[0]


def test_a_person_answers_in_the_inbox_and_is_told_what_to_change(server):
    run = server.run(asking(validate=whole), "apples").wait(timeout=30)
    assert (run.status, server._link.view(run.id)["needsPerson"]) == ("waiting", True)
    question = server.inbox()["who"]
    assert (question.prompt, question.expected_output) == ("how many apples?", "a number")
    with pytest.raises(pw.WorkflowInputError, match="give a whole number"):
        question.answer("many")
    assert "give a whole number" in repr(server.inbox()[0])
    question.answer(3)
    assert run.wait(timeout=30).output == 6
    assert (len(server.inbox()), repr(server.inbox())) == (0, "inbox: nothing is asked")
    with pytest.raises(pw.ConflictError, match="answered already"):
        question.answer(3)
    assert list(server.submissions().outcome) == ["rejected", "accepted"]
    assert list(server.messages().status) == ["cancelled"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_agent_of_the_session_answers_one_call_at_a_time(server, kind):
    heard, at_once = [], []

    def answer(request):
        at_once.append(threading.current_thread().name)
        heard.append((request.prompt, request.expected_output, request.node_id, request.attempt, request.input))
        return len(heard)

    async def answer_later(request):
        return answer(request)

    server.session.agent(answer if kind == "sync" else answer_later)
    assert server.run(asking(), "apples").wait(timeout=30).output == 1
    assert server.run(asking(), "pears").wait(timeout=30).output == 2
    assert heard == [(f"how many {fruit}?", "a number", "who", 1, fruit) for fruit in ("apples", "pears")]
    assert set(at_once) == {"pi-workflows-nb agent"}
    until(lambda: list(server.turns().stop_reason) == ["completed", "completed"])


def test_a_decision_is_asked_with_its_choices(server):
    wf = pw.Workflow("decides", start_at="which")

    @wf.decision(choices=["bug", "question"])
    def which(ctx):
        return "which is it?"

    run = server.run(wf)
    assert asked(server).choices == ["bug", "question"]
    with pytest.raises(pw.WorkflowInputError, match="'bug', 'question'"):
        server.inbox()[0].answer("feature")
    server.inbox()[0].answer("bug")
    assert run.wait(timeout=30).output == {"route": "bug"}


def test_the_agent_is_reminded_with_the_reason_and_given_up_after_three_turns(server):
    prompts = []

    @server.session.agent
    def answer(request):
        prompts.append(request.prompt)
        if len(prompts) == 2:
            raise RuntimeError("no idea")
        return "many"

    run = server.run(asking(validate=whole), "apples").wait(timeout=30)
    assert "3 turns without an answer" in run.output
    refused = "\n\nThe last answer was refused: node 'who': the value is refused: give a whole number"
    assert prompts == ["how many apples?", *[f"how many apples?{refused}"] * 2]
    assert list(server.turns().stop_reason) == ["completed", "error", "completed"]
    assert list(server.requests().unproductive_turn_ends) == [3]


def test_a_prompt_that_fails_fails_its_node(server):
    wf = pw.Workflow("broken", start_at="who")
    wf.agent(lambda ctx: 1 / 0, name="who")
    assert server.run(wf).wait(timeout=30).status == "failed"
    assert len(server.requests()) == 0


def test_a_pause_takes_the_question_back_and_a_resume_asks_it_again(server):
    run = server.run(asking(), "apples").wait(timeout=30)
    question = server.inbox()[0]
    run.pause()
    assert len(server.inbox()) == 0
    with pytest.raises(pw.ConflictError, match="paused"):
        question.answer(1)
    run.resume()
    assert sorted(server.messages().status) == ["cancelled", "pending"]
    server.inbox()[0].answer(1)
    assert run.wait(timeout=30).output == 1


def test_who_comes_last_speaks_for_the_session_and_the_other_is_fenced(server):
    from pi_workflows_nb.notebook.session import SessionAgent

    gate, calls = threading.Event(), []

    def slow(request):
        calls.append("slow")
        gate.wait(30)
        return "late"

    server.session.agent(slow)
    run = server.run(asking(), "apples")
    until(lambda: calls == ["slow"])
    assert run.status == "running"
    second = SessionAgent(server._link, server.session.id, lambda request: calls.append("second") or "in time")
    second.start()
    assert run.wait(timeout=30).output == "in time"
    gate.set()
    until(lambda: not server.session._agent.alive)
    assert server.session._agent.fenced
    assert "another kernel" in repr(server.session)
    assert server.run(asking(), "pears").wait(timeout=30).output == "in time"
    assert calls == ["slow", "second", "second"]
    assert set(server.turns().stop_reason) == {"lost", "completed"}
    assert list(server.submissions().outcome) == ["accepted", "accepted"]
    second.stop()


LARGE = "x" * (2 << 20)


@pytest.mark.parametrize("value", [LARGE, "x" * 50_000_000, {"lone": "\ud800", "deep": [[[]]]}])
def test_an_answer_of_any_size_is_taken_whole(server, value):
    run = server.run(asking(), "apples")
    asked(server).answer(value)
    assert run.wait(timeout=60).output == value


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), nested(10_000), object(), b"bytes"])
def test_what_is_no_answer_is_refused_in_one_sentence_and_the_step_goes_on(server, value):
    run = server.run(asking(), "apples")
    with pytest.raises(NotJsonError) as told:
        asked(server).answer(value)
    assert "\n" not in str(told.value)
    server.inbox()[0].answer(1)
    assert run.wait(timeout=30).output == 1


def test_the_same_answer_under_the_same_key_is_adopted(server):
    run = server.run(asking(validate=whole), "apples")
    request_id = asked(server).request_id
    payload = {"requestId": request_id, "value": {"inline": 4}}
    said = [server._connection.request("interaction.submit", payload, key="k", client_id="me") for _ in range(2)]
    assert [one.outcome for one in said] == ["accepted", "adopted"]
    assert run.wait(timeout=30).output == 8
    other = {**payload, "value": {"inline": 5}}
    assert server._connection.request("interaction.submit", other, key="k", client_id="me").outcome == "conflict"
    assert len(server.submissions()) == 1


def test_a_child_that_dies_while_it_looks_at_an_answer_leaves_the_question(server, tmp_path):
    mark = tmp_path / "once"

    def die_once(value):
        import os

        if not mark.exists():
            mark.touch()
            os._exit(1)

    run = server.run(asking(validate=die_once), "apples")
    with pytest.raises(pw.WorkflowInputError, match="ended without an answer"):
        asked(server).answer(1)
    server.inbox()[0].answer(1)
    assert run.wait(timeout=30).output == 1


def test_of_many_answers_at_the_same_moment_one_counts(server):
    run = server.run(asking(), "apples")
    question, outcomes = asked(server), []
    server.session.agent(lambda request: 0)

    def answer(number):
        try:
            question.answer(number)
            outcomes.append(number)
        except pw.PiWorkflowsError:
            pass

    people = [threading.Thread(target=answer, args=(number,)) for number in range(1, 9)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    output = run.wait(timeout=30).output
    assert outcomes == ([output] if output else [])
    assert list(server.submissions().outcome).count("accepted") == 1
