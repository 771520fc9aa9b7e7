"""`resource-managers` and `resource-manager`: what the project of this folder has, served or not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rich.console import Console

import pi_workflows_nb as pw
from pi_workflows_nb.viewer import asking, resources

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


def call(*words, cwd):
    return subprocess.run([*PROGRAM, *words], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path):
    manager = pw.ResourceManager("box")

    @manager.reconcile
    def reconcile(ctx, resource):
        if resource.key == "bad":
            raise ValueError("no [red]luck")
        return ctx.settled(
            status={"n": 1}, conditions=[pw.condition_false("Ready", "No", "[red]not")], finalizers=["clean"]
        )

    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path) as server:
        server.apply(manager, "<one>", {"n": "[bold]"}).wait_settled(60)
        bad = server.apply(manager, "bad")
        while server.resource_queue()["consecutive_errors"].sum() == 0:
            bad.reconcile()
        yield tmp_path


def shown(renderable):
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def lines(result):
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_resources_of_the_project_are_listed(project, tmp_path_factory):
    found = lines(call("resource-managers", "--database", "s.sqlite", cwd=project))
    assert [one["key"] for one in found] == ["<one>", "bad"]
    assert found[0]["conditions"] == {"Ready": False}
    assert lines(call("resource-managers", "--limit", "1", "--database", "s.sqlite", cwd=project)) == found[:1]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert lines(call("resource-managers", "--database", project / "s.sqlite", cwd=elsewhere)) == []
    text = shown(resources.of_resources(asking.resources(project / "s.sqlite", project, 50)))
    assert "<one>" in text
    assert "Ready false" in text


def test_one_is_shown_whole(project):
    (found,) = lines(call("resource-manager", "box", "<one>", "--database", "s.sqlite", cwd=project))
    assert found["spec"] == {"n": "[bold]"}
    assert found["status"]["resourceManagerStatus"] == {"n": 1}
    assert found["queue"] == {"availableAt": None, "consecutiveErrors": 0, "error": None, "held": False}
    text = shown(resources.of_resource(asking.resource(project / "s.sqlite", project, "box", "<one>")))
    assert "[bold]" in text, "text of a resource is data"
    assert "false (No): [red]not" in text
    assert "clean" in text
    text = shown(resources.of_resource(asking.resource(project / "s.sqlite", project, "box", "bad")))
    assert "no [red]luck" in text
    assert "errors in a row" in text


@pytest.mark.parametrize("words", [["resource-manager", "box", "two"], ["resource-manager", "no-such", "<one>"]])
def test_one_that_is_not_there_is_one_line_and_status_1(project, words):
    result = call(*words, "--database", "s.sqlite", cwd=project)
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "no managed resource" in result.stderr
