"""Agent and decision nodes with a function that answers."""

from __future__ import annotations

import pytest

from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.engine import WorkflowEngine


def asking(**given):
    wf = Workflow("ask", start_at="node")
    wf.agent(name="node", **given)(lambda ctx: f"about {ctx.input}")
    return wf


def deciding(**given):
    wf = Workflow("pick", start_at="node")
    wf.decision(name="node", choices=["bug", "question"], **given)(lambda ctx: "which?")
    wf.compute(name="bug")(lambda ctx: "a bug")
    wf.compute(name="question")(lambda ctx: "a question")
    wf.decision_edge("node", {"bug": "bug", "question": "question"})
    return wf


def test_the_request_says_what_is_asked():
    requests = []

    def agent(request):
        requests.append(request)
        return {"answer": 42}

    result = WorkflowEngine(executor=agent).run(asking(expected_output="{answer}"), "life")
    assert result.output == {"answer": 42}
    (request,) = requests
    assert (request.prompt, request.expected_output, request.choices) == ("about life", "{answer}", None)
    assert (request.node_id, request.attempt, request.input) == ("node", 1, "life")


def test_executors_come_in_every_form():
    class Executor:
        async def run(self, request):
            return request.prompt

    async def answer(request):
        return request.prompt

    class Called:
        def __call__(self, request):
            return request.prompt

    for executor in (Executor(), answer, Called()):
        assert WorkflowEngine(executor=executor).run(asking(), 1).output == "about 1"


def test_validate_shapes_or_refuses():
    result = WorkflowEngine(executor=lambda request: " x ").run(asking(validate=str.strip))
    assert result.output == "x"

    def refuse(value):
        raise ValueError("too short")

    result = WorkflowEngine(executor=lambda request: "x").run(asking(validate=refuse))
    assert result.status == "failed"
    assert "too short" in result.error


@pytest.mark.parametrize("answer", ["bug", {"route": "bug"}])
def test_a_decision_takes_a_choice_in_both_forms(answer):
    result = WorkflowEngine(executor=lambda request: answer).run(deciding())
    assert result.steps[0]["output"] == {"route": "bug"}
    assert result.output == "a bug"


@pytest.mark.parametrize("answer", ["other", {"route": "other"}, None, 3, ["bug"], {"route": ["bug"]}])
def test_a_wrong_choice_fails_and_lists_the_choices(answer):
    result = WorkflowEngine(executor=lambda request: answer).run(deciding())
    assert result.status == "failed"
    assert "'bug'" in result.error
    assert "'question'" in result.error


def test_choices_reach_the_agent_and_the_field_may_be_named():
    seen = []
    wf = deciding(field="kind")
    result = WorkflowEngine(executor=lambda request: seen.append(request.choices) or "question").run(wf)
    assert seen == [["bug", "question"]]
    assert result.steps[0]["output"] == {"kind": "question"}


def test_without_an_agent_the_node_says_what_is_missing():
    error = WorkflowEngine().run(asking()).error
    assert error.startswith("SessionRequiredError")
    assert "agent=" in error


def test_a_prompt_must_be_text():
    wf = Workflow("ask", start_at="node")
    wf.agent(name="node")(lambda ctx: {"not": "text"})
    assert "must return the prompt" in WorkflowEngine(executor=lambda request: 1).run(wf).error


def test_the_agents_own_error_shows_its_lines():
    def agent(request):
        raise LookupError("no model")

    error = WorkflowEngine(executor=agent).run(asking()).error
    assert error.startswith("LookupError: no model\n")
    assert "in agent" in error
