"""The server as an object in a cell: what it tells of itself, its project, and its end."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import ServerStoppedError, StateFileError


def workflow():
    wf = pw.Workflow("one", start_at="a")

    @wf.compute
    def a(ctx):
        return 1

    return wf


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_it_tells_how_it_stands(state_file, tmp_path, placement):
    with pw.start(database=state_file, project=tmp_path, server=placement) as server:
        server.run(workflow()).wait(timeout=30)
        status = server.status()
        assert status["runs"] == {"completed": 1}
        assert status["max_runners"] >= 1
        assert {"pid", "epoch", "runners", "queue", "commits", "lag_ms"} <= set(status)
        text = repr(server)
        for part in ("running", str(state_file), str(tmp_path), "1 completed"):
            assert part in text
        assert "completed" in server._repr_html_()
        assert set(server._repr_mimebundle_()) == {"text/plain", "text/html"}
        assert "runs" in repr(status)
        assert "<table" in status._repr_html_()
        assert len(server.verify()) == 0
        assert list(server.verify().columns) == ["rule", "table", "id", "what_is", "what_should_be"]
    assert not server.alive
    assert "stopped" in repr(server)
    with pytest.raises(ServerStoppedError):
        server.status()
    assert len(server.verify()) == 0
    server.stop()


def test_frames_show_its_project_unless_asked_for_all(state_file, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with pw.start(database=state_file, project=one) as server:
        elsewhere = pw.start(database=state_file, project=other)
        mine = server.run(workflow()).wait(timeout=30)
        theirs = elsewhere.run(workflow()).wait(timeout=30)
        assert list(server.runs().index) == [mine.id]
        assert list(elsewhere.runs().index) == [theirs.id]
        assert len(server.runs(project="*")) == 2
        assert set(server.steps().index.get_level_values("run_id")) == {mine.id}
        assert list(server.steps(run=theirs.id)["node_id"]) == ["a"]
        assert "1 completed" in repr(server)


def test_files_of_the_project_are_run_by_name_and_path(state_file, tmp_path):
    folder = tmp_path / ".pi" / "workflows"
    folder.mkdir(parents=True)
    text = (
        "import pi_workflows_nb as pw\n\nwf = pw.Workflow('filed', start_at='a')\n\n"
        "@wf.compute\ndef a(ctx):\n    return [ctx.input, 'filed']\n"
    )
    (folder / "filed.workflow.py").write_text(text)
    with pw.start(database=state_file, project=tmp_path) as server:
        by_name = server.run("filed", 1).wait(timeout=30)
        by_path = server.run(folder / "filed.workflow.py", 2).wait(timeout=30)
        assert (by_name.output, by_path.output) == ([1, "filed"], [2, "filed"])
        assert set(server.runs()["workflow"]) == {"filed"}


def test_the_database_object_is_closed_with_it(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path) as server:
        server.run(workflow()).wait(timeout=30)
        assert server.db["runs"].count == 1
    assert not state_file.with_name(state_file.name + "-wal").exists()
    assert server.db["runs"].count == 1
    server._close_database()


def test_a_path_without_a_file_is_told(tmp_path):
    with pytest.raises(StateFileError, match="there is no state file"):
        pw.open_state(tmp_path / "nothing.sqlite")


def test_a_state_file_shows_itself(filled):
    with pw.open_state(filled) as state:
        assert str(filled) in repr(state)
        assert "2 completed" in state._repr_html_()
        assert set(state._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_what_is_gone_is_told_and_not_raised(filled):
    state = pw.open_state(filled)
    run = state.get_run("run-done")
    filled.unlink()
    for shown in (repr(state), repr(run), run._repr_html_(), state._repr_html_()):
        assert "there is no state file" in shown
