"""What a person does first: the quickstart in JupyterLab, Run All, and the graph reaches its end."""

from __future__ import annotations

import nbformat
import pytest

from tests.notebooks.books import NOTEBOOKS, code_of

NAME = "01_quickstart.ipynb"


@pytest.mark.slow
def test_run_all_takes_the_graph_to_its_end(lab, book):
    notebook = nbformat.read(NOTEBOOKS / NAME, as_version=4)
    for cell in code_of(notebook):
        cell.outputs = []
    nbformat.write(notebook, lab.folder / NAME)
    (run,) = (at for at, cell in enumerate(code_of(notebook)) if cell.source.endswith("\nrun"))
    book.open(NAME)
    book.run_all()
    shown = book.output(run)
    assert shown.get_by_text("completed", exact=True).count() > 1
    assert shown.locator("svg text", has_text="report").is_visible()
    assert book.page.locator('[data-mime-type="application/vnd.jupyter.error"]').count() == 0
    assert book.trouble == []
