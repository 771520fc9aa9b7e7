"""Where resource managers come from, and that none of their code runs anywhere but in a supervised child."""

from __future__ import annotations

import os

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook import shipping
from pi_workflows_nb.wire import canonical_json
from tests.kernels import Kernel

SAYS = """
    m = pw.ResourceManager({name!r}, initial_status={initial})

    @m.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(status={{"said": {said!r}}}, conditions=[pw.condition_true("Ready", "Yes")])
"""


def says(name, said, initial="None"):
    return SAYS.format(name=name, said=said, initial=initial)


def said(resource):
    return resource.wait_for("Ready", timeout=60).status.resource_manager_status["said"]


def test_one_lies_in_a_file_of_the_project(server, write):
    write("box", says("box", "project"))
    assert said(server.resources.apply("box", "one")) == "project"


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / ".pi" / "agent" / "resource-managers"
    folder.mkdir(parents=True)
    return folder


def test_one_lies_in_the_folder_of_the_user_and_the_project_comes_first(user_folder, server, write):
    for name in ("box", "crate"):
        text = "import os\nimport pi_workflows_nb as pw\n" + says(name, "user").replace("\n    ", "\n")
        (user_folder / f"{name}.resource_manager.py").write_text(text)
    write("box", says("box", "project"))
    assert said(server.resources.apply("box", "one")) == "project"
    assert said(server.resources.apply("crate", "one")) == "user"


def test_one_is_made_in_cells_and_travels_with_what_it_refers_to(server):
    prefix = "from a cell, "

    def describe(spec):
        return prefix + spec

    manager = pw.ResourceManager("inline", initial_status=lambda spec: {"first": describe(spec)})

    @manager.reconcile
    async def reconcile(ctx, resource):
        return ctx.settled(status={"said": describe(resource.spec)}, conditions=[pw.condition_true("Ready", "Yes")])

    resource = server.apply(manager, "one", "hello")
    assert said(resource) == "from a cell, hello"
    assert resource.status.resource_manager_status["first"] == "from a cell, hello"


def test_one_from_a_cell_goes_on_under_the_next_server(server, again):
    manager = pw.ResourceManager("inline")

    @manager.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(status={"said": resource.spec}, conditions=[pw.condition_true("Ready", "Yes")])

    said(server.apply(manager, "one", 1))
    server.stop()
    served = again()
    resource = served.resources.apply("inline", "one", 2)
    assert said(resource) == 2
    assert resource.generation == 2


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_cell_is_run_again_and_its_newest_text_counts(tmp_path, placement):
    cell = """
%%resource_manager box
import pi_workflows_nb as pw
m = pw.ResourceManager("box")

@m.reconcile
def reconcile(ctx, resource):
    return ctx.settled(status={"said": SAID}, conditions=[pw.condition_true("Ready", "Yes")])
"""
    kernel = Kernel(tmp_path)
    try:
        kernel.run(f"import pi_workflows_nb as pw\nserver = pw.start(database='s.sqlite', server={placement!r})")
        look = "r.wait_for('Ready', timeout=60); print(r.status.resource_manager_status['said'])"
        kernel.run(cell.replace("SAID", "'first'").lstrip())
        assert kernel.run(f"r = server.apply(m, 'k', 1)\n{look}").split()[-1] == "first"
        kernel.run(cell.replace("SAID", "'second'").lstrip())
        assert kernel.run(f"r = server.resources.apply('box', 'k', 2)\n{look}").split()[-1] == "second"
        kernel.run("server.stop()")
    finally:
        kernel.close()


def test_code_runs_in_children_only(server, write, placement):
    write(
        "box",
        """
        (here / f"loaded-{os.getpid()}").touch()

        def first(spec):
            (here / f"first-{os.getpid()}").touch()

        m = pw.ResourceManager("box", initial_status=first)

        @m.reconcile
        def reconcile(ctx, resource):
            (here / f"pass-{os.getpid()}").touch()
            return ctx.settled(status={"said": "x"}, conditions=[pw.condition_true("Ready", "Yes")])
        """,
    )
    said(server.resources.apply("box", "one"))
    pids = {
        name: {int(path.name.split("-")[1]) for path in server.project.glob(f"{name}-*")}
        for name in ("loaded", "first", "pass")
    }
    here = {os.getpid(), server.status()["pid"]}
    assert pids["first"]
    assert pids["pass"]
    assert not here & (pids["loaded"] | pids["first"] | pids["pass"])
    assert not pids["first"] & pids["pass"]


def test_a_file_that_was_changed_is_used_from_the_next_pass_on(server, write, until):
    write("box", says("box", "old"))
    resource = server.resources.apply("box", "one")
    assert said(resource) == "old"
    write("box", says("box", "new"))
    resource.reconcile()
    until(lambda: resource.status.resource_manager_status["said"] == "new")


def test_a_source_that_vanished_is_waited_for(server, write, until):
    write("box", says("box", "old"))
    resource = server.resources.apply("box", "one")
    said(resource)
    path = server.project / ".pi" / "resource-managers" / "box.resource_manager.py"
    path.unlink()
    resource.reconcile()
    version = resource.resource_version
    other = pw.ResourceManager("other")

    @other.reconcile
    def reconcile(ctx, resource):
        return ctx.settled(status={"said": "other"}, conditions=[pw.condition_true("Ready", "Yes")])

    assert said(server.apply(other, "one")) == "other"
    assert resource.resource_version == version, "nobody has looked at it"
    write("box", says("box", "new"))
    until(lambda: resource.status.resource_manager_status["said"] == "new")


def test_a_source_that_comes_not_from_this_user_is_refused(server, tmp_path):
    manager = pw.ResourceManager("forged")

    @manager.reconcile
    def reconcile(ctx, resource):
        return ctx.settled()

    sent = shipping.definition_of(manager, (), tmp_path, b"another key" * 3)
    link = server._link
    payload = {
        "definition": link.connection.value(canonical_json.encode(sent)),
        "environment": {},
        "key": "one",
        "project": str(server.project),
        "resourceManager": "forged",
        "spec": link.value(None),
    }
    with pytest.raises(pw.SourceError, match="not frozen by this user"):
        link.ask("resourceManager.apply", payload)
    assert server.resources().empty


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def broken(:", "invalid syntax"),
        ("raise ValueError('no such thing')", "no such thing"),
        ("m = pw.ResourceManager('other')\n@m.reconcile\ndef f(c, r): pass", "other"),
        ("m = pw.ResourceManager('box')", "reconcile"),
        ("m = 3", "resource manager"),
        ("m = pw.ResourceManager('box', initial_status=lambda s: 1 / 0)\n@m.reconcile\ndef f(c, r): pass", "division"),
        ("m = pw.ResourceManager('box', initial_status=lambda s: {1, 2})\n@m.reconcile\ndef f(c, r): pass", "JSON"),
        ("os._exit(3)", "ended without an answer"),
    ],
)
def test_a_source_that_cannot_be_used_is_told_when_it_is_applied(server, write, code, said):
    write("box", code)
    with pytest.raises(pw.PiWorkflowsError, match=said):
        server.resources.apply("box", "one")
    assert server.resources().empty


def test_a_manager_of_no_such_name_is_told(server):
    with pytest.raises(pw.NotFoundError, match="no-such"):
        server.resources.apply("no-such", "one")
    with pytest.raises(pw.NotFoundError):
        server.resources.apply("../etc", "one")
