"""The table of rules names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_rule_of_a_runs_life_names_a_test_that_is_there():
    table = (TESTS / "README.md").read_text().partition("## Rules of a run's life")[2].partition("\n## ")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ") and "`" in row]
    assert len(cells) > 40
    for cell in cells:
        file = ""
        for named in re.findall(r"`([^`]+)`", cell):
            path, _, name = named.partition("::")
            file = path or file
            assert f"def {name}(" in (TESTS / file).read_text() or not name, named
