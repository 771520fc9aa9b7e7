"""Questions about a source, asked in a process of their own."""

from __future__ import annotations

import pytest

from pi_workflows_nb.runner import inspection
from pi_workflows_nb.wire.canonical_json import encode
from pi_workflows_nb.workflows.sources import freeze
from tests.runner.peer import ask, chain

AGENT = {0: "wf.decision(choices=['a', 'b'])"}


def asked(question):
    return inspection.answer(encode(question))


def describing(source, **given):
    return {"op": "describe", "source": freeze(None, text=source), "name": None, "input": None, **given}


def test_a_workflow_is_described_by_a_child(tmp_path):
    source = chain("return 1", name="greet") + "wf.title = lambda given, name: f'{name} {given}'\n"
    answer = ask(tmp_path, describing(source, input="you"))
    result = answer["result"]
    assert answer["ok"] is True
    assert (result["name"], result["title"], result["input"]) == ("greet", "greet you", "you")
    assert result["mode"] == "headless"
    assert result["snapshot"]["startAt"] == "n0"
    assert len(result["digest"]) == 64


def test_what_the_source_prints_is_no_answer(tmp_path):
    assert ask(tmp_path, describing("print('hello')\n" + chain("return 1")))["ok"] is True
    assert (tmp_path / "epoch.log").read_text() == "hello\n"


def test_a_graph_that_asks_an_agent_is_interactive_unless_one_came_along():
    source = chain("return 'x'", decorators=AGENT)
    assert asked(describing(source))["result"]["mode"] == "interactive"
    frozen = freeze(None, text=source, agent=lambda request: "a")
    assert asked({"op": "describe", "source": frozen})["result"]["mode"] == "headless"


@pytest.mark.parametrize(
    ("source", "given", "kind"),
    [
        ("x = (", None, "SourceError"),
        ("x = 1", None, "SourceError"),
        ("raise SystemExit(3)", None, "SourceError"),
        (chain("return 1") + "wf.edge('n0', 'nowhere')\n", None, "WorkflowDefinitionError"),
        (chain("return 1") + "wf.input = int\n", "x", "WorkflowInputError"),
    ],
)
def test_errors_come_back_as_what_they_are(source, given, kind):
    answer = asked(describing(source, input=given))
    assert answer["ok"] is False
    assert answer["kind"] == kind
    assert answer["error"]


def test_a_submitted_value_is_validated():
    source = chain("return 'x'", decorators=AGENT)
    question = {"op": "validate", "source": freeze(None, text=source), "nodeId": "n0"}
    assert asked({**question, "value": "b"})["result"] == {"value": {"route": "b"}}
    answer = asked({**question, "value": "c"})
    assert (answer["ok"], answer["kind"]) == (False, "WorkflowInputError")
    assert asked({**question, "nodeId": "other", "value": 1})["kind"] == "NotFoundError"


@pytest.mark.parametrize("line", [b"", b"nonsense", b"{}", b'{"op":"dance"}', b"[]"])
def test_nonsense_is_answered(line):
    assert inspection.answer(line)["ok"] is False
