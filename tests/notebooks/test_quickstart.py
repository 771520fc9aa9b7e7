"""The quickstart runs wherever it lies, checks its own result, and does nothing twice."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

import pi_workflows_nb as pw
from tests.notebooks.books import NOTEBOOKS, client_of, code_of, run_all, shown_by
from tests.repositories import NAMES, make_repository

QUICKSTART = "01_quickstart.ipynb"


def check_cell(book):
    (cell,) = [cell for cell in code_of(book) if "assert len(report)" in cell.source]
    return cell


@pytest.fixture
def repository(tmp_path):
    folder = make_repository(tmp_path / "repository") / "notebooks"
    shutil.copytree(NOTEBOOKS, folder)
    return folder


@pytest.fixture
def state(state_folder):
    """The state file that the notebook wrote, when it is there."""
    return lambda: pw.open_state(state_folder / "state.sqlite")


def test_in_a_repository_it_counts_commits(repository, state):
    book = client_of(repository / QUICKSTART).execute()
    assert "'git'" in shown_by(code_of(book)[1])
    shown = shown_by(check_cell(book))
    assert "often.txt" in shown
    assert "täglich.txt" in shown
    with state() as file:
        assert file.verify().empty
        report = file.runs(status="completed", payloads=True)["output"].iloc[0]
    assert report["rows"][0] == {"count": 4, "lines": 4, "name": "often.txt"}
    # A deleted file was changed too.
    assert set(NAMES) | {"on the side.txt", "renamed.txt"} >= {row["name"] for row in report["rows"]}
    assert {row["lines"] for row in report["rows"] if row["name"] == 'quo"te.txt'} == {0}


def test_without_git_it_counts_modules(tmp_path, monkeypatch, state):
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder)
    programs = [path for path in os.environ["PATH"].split(os.pathsep) if not Path(path, "git").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(programs))
    book = client_of(folder / QUICKSTART).execute()
    assert "'python'" in shown_by(code_of(book)[1])
    assert "asyncio" in shown_by(check_cell(book))
    with state() as file:
        assert file.verify().empty


def test_run_all_again_starts_nothing_twice(repository, state):
    """In the same kernel, and after a restart."""
    client = client_of(repository / QUICKSTART)
    with client.setup_kernel():
        for _ in range(2):
            run_all(client)
    again = client_of(repository / QUICKSTART).execute()
    assert "completed" in shown_by(code_of(again)[-2])
    with state() as file:
        assert len(file.runs()) == 2, "a run and its continuation"
        assert file.effects()["attempt_count"].tolist() == [1, 1]
        assert file.verify().empty


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_committed_notebook_is_complete_and_names_no_machine(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = code_of(book)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert [output for cell in cells for output in cell.outputs if output.output_type == "error"] == []
    assert "widgets" not in book.metadata, "what a saved widget shows needs its kernel"
    text = json.dumps([cell.outputs for cell in cells])
    assert "application/vnd.jupyter.widget-view" not in text
    assert re.findall(r"(?<![\w./:<])/(?:home|root|tmp|var|usr|work|opt|Users|private)/[\w.-]+", text) == []


def test_pictures_of_the_notebooks_are_there():
    for path in NOTEBOOKS.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", cell.source):
                assert (path.parent / target).is_file()
