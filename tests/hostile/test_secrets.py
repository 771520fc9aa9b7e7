"""Environment variables reach a run's code and nothing else; tokens of claims are told to nobody."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.notebook.frame_definitions import FRAMES
from pi_workflows_nb.runner import proc
from pi_workflows_nb.state import mutation, server_row
from pi_workflows_nb.wire import identities
from tests.hostile.surroundings import until


def in_rows(path: Path, needles: set[str]) -> list[str]:
    """Where in any table a text stands, in whatever form."""
    found = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    found += [f"{table}: {needle}" for needle in needles if needle.encode() in data]
    return found


def in_files(folder: Path, needles: set[str]) -> list[str]:
    """Files below a folder that hold a text; the live database counts byte by byte."""
    return [
        f"{path}: {needle}"
        for path in folder.rglob("*")
        if path.is_file()
        for needle in needles
        if needle.encode() in path.read_bytes()
    ]


def in_titles(needles: set[str]) -> list[str]:
    return [
        f"{pid}: {needle}"
        for pid in psutil.pids()
        for needle in needles
        if needle.encode() in (proc.read_file(f"/proc/{pid}/cmdline") or b"")
    ]


@pytest.fixture
def claimed(monkeypatch):
    """The tokens of all claims that are made in this process."""
    made: list[str] = []
    original = identities.new_token

    def noted() -> str:
        made.append(original())
        return made[-1]

    monkeypatch.setattr(identities, "new_token", noted)
    for module in (mutation, server_row):
        if hasattr(module, "new_token"):
            monkeypatch.setattr(module, "new_token", noted)
    return made


def workflow(report: Path, gate: Path):
    wf = pw.Workflow("secretive", start_at="reads")

    @wf.compute
    def reads(ctx):
        import time

        report.write_text(f"{os.environ['EARLY_TOKEN']} {os.environ['LATE_TOKEN']}")
        print("read", len(os.environ["LATE_TOKEN"]))
        while not gate.exists():
            time.sleep(0.01)
        return len(os.environ["LATE_TOKEN"])

    @wf.compute
    def fails(ctx):
        token = os.environ["LATE_TOKEN"]
        raise ValueError(f"refused after {len(token)} characters")

    wf.edge("reads", "fails")
    return wf


def test_a_token_stands_in_no_row_log_error_frame_or_title(tmp_path, placement, monkeypatch, claimed, state_folder):
    early, late = f"early-{secrets.token_hex(20)}", f"late-{secrets.token_hex(20)}"
    report, gate, kept = tmp_path / "report", tmp_path / "gate", tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setenv("EARLY_TOKEN", early)
    with pw.start(database=kept / "s.sqlite", project=tmp_path, server=placement) as server:
        monkeypatch.setenv("LATE_TOKEN", late)
        run = server.run(workflow(report, gate))
        until(lambda: report.exists() and report.read_text())
        assert report.read_text() == f"{early} {late}", "the run sees the variables of the moment it was started"
        needles = {early, late, *claimed}
        assert len(claimed) >= 2 or placement == "process"
        assert in_titles(needles) == []
        gate.touch()
        run.wait(timeout=30)
        with pytest.raises(pw.RunFailed) as told:
            _ = run.output
        needles = {early, late, *claimed}
        shown = [str(told.value), repr(run), repr(server), repr(server.status()), str(run._repr_mimebundle_())]
        shown += [getattr(server, name)().to_csv() for name in FRAMES if hasattr(server, name)]
        assert len(shown) > 15
        shown.append(server.logs(run=run.id).to_csv())
        assert [needle for needle in needles if any(needle in text for text in shown)] == []
        assert "refused after" in str(told.value)
        assert in_rows(kept / "s.sqlite", needles) == []
        assert in_files(kept, needles) == []
    assert in_rows(kept / "s.sqlite", needles) == []
    assert in_files(kept, needles) == []
    assert in_files(state_folder, needles) == []
    # It is no blind search: what the runner printed, and what the error said, is found.
    assert in_rows(kept / "s.sqlite", {"refused after"}) != []
    assert in_files(kept, {"read "}) != []


def test_a_runner_that_cannot_be_started_tells_no_variable(tmp_path, placement, monkeypatch, state_folder):
    token = f"late-{secrets.token_hex(20)}"
    project, kept = tmp_path / "project", tmp_path / "kept"
    project.mkdir()
    kept.mkdir()
    with pw.start(database=kept / "s.sqlite", project=project, server=placement) as server:
        monkeypatch.setenv("LATE_TOKEN", token)
        wf = pw.Workflow("nowhere", start_at="step")
        wf.compute(name="step")(lambda ctx: 1)
        project.rename(tmp_path / "elsewhere")
        run = server.run(wf)
        until(lambda: len(server.runners()) >= 1 and server.runners().finished_at.notna().any())
        shown = [repr(run), server.runners(payloads=True).to_csv(), server.runs().to_csv()]
        assert not any(token in text for text in shown)
        (tmp_path / "elsewhere").rename(project)
        assert run.wait(timeout=30).output == 1, "and it goes on when its folder is back"
    assert in_rows(kept / "s.sqlite", {token}) == []
    assert in_files(kept, {token}) == []
    assert in_files(state_folder, {token}) == []


def test_after_a_take_over_a_run_sees_the_variables_of_who_serves_then(tmp_path, placement, monkeypatch):
    report, gate = tmp_path / "report", tmp_path / "gate"
    monkeypatch.setenv("EARLY_TOKEN", "one")
    monkeypatch.setenv("LATE_TOKEN", "two")
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as server:
        run = server.run(workflow(report, gate))
        until(lambda: report.exists() and report.read_text())
    monkeypatch.setenv("LATE_TOKEN", "three")
    gate.touch()
    with pw.start(database=tmp_path / "s.sqlite", project=tmp_path, server=placement) as server:
        server.get_run(run.id).wait(timeout=30)
    assert report.read_text() == "one three"
