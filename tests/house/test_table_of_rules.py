"""The tables of rules name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


TABLES = re.findall(r"^## (Rules of .*)$", (TESTS / "README.md").read_text(), re.MULTILINE)
FOLDERS = {
    "Rules of commands and clients": "client",
    "Rules of a hostile world": "hostile",
    "Rules of the store of managed resources": "resource_managers",
    "Rules of resource managers at work": "reconcile",
    "Rules of what a person sees": "notebook",
}
"""Where the files of a table lie unless they name a folder."""


@pytest.mark.parametrize("title", TABLES)
def test_each_rule_names_a_test_that_is_there(title):
    table = (TESTS / "README.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    cells = [row.rpartition(" | ")[2] for row in table.splitlines() if row.startswith("| ")][2:]
    assert len(cells) > 10
    for cell in cells:
        file = ""
        named = re.findall(r"`([^`]+)`", cell)
        assert named, cell
        for one in named:
            path, _, name = one.partition("::")
            file = path or file
            text = (TESTS / ("" if "/" in file else FOLDERS[title]) / file).read_text()
            assert f"def {name}(" in text or not name, one


def test_there_are_such_tables():
    assert len(TABLES) >= 3
