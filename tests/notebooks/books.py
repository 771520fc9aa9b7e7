"""The teaching notebooks, read and executed where a test wants them."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def code_of(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def cell_with(book, line):
    """The one cell of code that holds a line."""
    (found,) = [cell for cell in code_of(book) if line in cell.source]
    return found


def shown_by(cell):
    """Everything a cell shows, as text."""
    parts = []
    for output in cell.outputs:
        parts += [output.get("text", "")] + [str(value) for value in output.get("data", {}).values()]
    return "\n".join(parts)


def client_of(path):
    """A client that executes the notebook at a path, in the folder where it lies."""
    resources = {"metadata": {"path": str(path.parent)}}
    return NotebookClient(nbformat.read(path, as_version=4), timeout=60, kernel_name="python3", resources=resources)


def run_all(client):
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
