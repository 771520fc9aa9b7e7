"""The workflows that come with the package, with an agent that follows a script."""

from __future__ import annotations

from pathlib import Path

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.workflows import discovery
from pi_workflows_nb.workflows.sources import load_text


def builtin(name):
    return load_text(discovery.find(f"builtin:{name}", Path.cwd()).text, name=name)


class Script:
    """An agent: what it sees at each check, and what it decides; the last entry stands for all that follow."""

    def __init__(self, *checks):
        self.checks, self.looks, self.acts, self.prompts = checks, 0, [], []

    def __call__(self, request):
        self.prompts.append(request.prompt)
        if request.node_id.endswith("observe"):
            self.looks += 1
            return {"evidence": self._now()[0], "tracks": [{"label": "files", "completed": self.looks, "total": 9}]}
        if request.node_id.endswith("decide"):
            return self._now()[1]
        self.acts.append(self._now()[0])
        return {"did": "it"}

    def _now(self):
        return self.checks[min(self.looks, len(self.checks)) - 1]


def watch(*checks, most=10, store=None):
    agent = Script(*checks)
    result = builtin("monitor").run_here(
        {"goal": "the build is green", "interval": 0, "maxChecks": most}, agent=agent, store=store
    )
    return result, agent


def test_a_monitor_waits_acts_and_stops():
    result, agent = watch(("red", "wait"), ("broken", "act"), ("green", "stop"))
    assert result.output == {"checks": 3, "actions": 1, "evidence": "green", "reason": "decided"}
    assert agent.acts == ["broken"]
    assert [step["nodeId"] for step in result.steps].count("rest") == 2


def test_evidence_that_was_acted_on_is_not_acted_on_again_before_it_changes():
    result, agent = watch(*[({"b": 1, "a": [2]}, "act")] * 3, ({"a": [3]}, "act"), ({"a": [2], "b": 1}, "act"), most=5)
    assert agent.acts == [{"b": 1, "a": [2]}, {"a": [3]}, {"a": [2], "b": 1}]
    assert result.output["actions"] == 3
    assert sum("acted on already" in prompt for prompt in agent.prompts) == 2


@pytest.mark.parametrize("choice", ["wait", "act"])
def test_it_ends_with_the_last_check_that_is_allowed(choice):
    result, agent = watch(("red", choice), most=4)
    assert (result.output["checks"], result.output["reason"], agent.looks) == (4, "maxChecks", 4)


def test_it_publishes_its_checks_and_the_tracks_it_saw():
    store = pw.LocalStore()
    watch(("red", "wait"), most=2, store=store)
    assert [(key, data["completed"], data["total"], data["unit"]) for _, _, key, data in store.updates] == [
        ("checks", 0, 2, "checks"),
        ("track-1", 1, 9, "items"),
        ("checks", 1, 2, "checks"),
        ("track-1", 2, 9, "items"),
    ]


def test_a_plain_summary_is_a_text():
    result = builtin("plain-summary").run_here("It rains.", agent=lambda request: {"summary": " Rain. "})
    assert result.output == {"summary": "Rain."}
    with pytest.raises(pw.WorkflowInputError, match="not blank"):
        builtin("plain-summary").run_here("It rains.", agent=lambda request: " ")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("monitor", {}, "give what to watch"),
        ("monitor", {"goal": "x", "every": 1}, "there is no 'every'"),
        ("monitor", {"goal": "x", "interval": -1}, "interval is a number of seconds"),
        ("monitor", {"goal": "x", "maxChecks": 1001}, "from 1 to 1000"),
        ("plain-summary", {"text": " "}, "give the text"),
        ("plain-summary", {"text": "x", "maxWords": 0}, "at least 1"),
    ],
)
def test_inputs_are_checked(name, given, said):
    with pytest.raises(pw.WorkflowInputError, match=said):
        builtin(name).run_here(given)


@pytest.mark.parametrize("name", sorted(discovery.WORKFLOWS.builtins))
def test_nothing_about_them_is_suspicious(name):
    found = builtin(name).check()
    assert found[found["level"] == "warning"].empty
    assert builtin(name).name == name


def test_they_are_found_after_all_others_and_can_be_included(tmp_path):
    wf = pw.Workflow("outer", start_at="watch")
    wf.include("watch", "builtin:monitor")
    assert wf.run_here("x", agent=Script(("done", "stop"))).output["exit"] == "stopped"
    (tmp_path / ".pi" / "workflows").mkdir(parents=True)
    (tmp_path / ".pi" / "workflows" / "monitor.workflow.py").write_text("own = 1\n")
    assert discovery.find("monitor", tmp_path).type == "file"
    assert discovery.find("builtin:monitor", tmp_path).identity["type"] == "builtin"
