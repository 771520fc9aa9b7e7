"""A type checker sees the mistakes that Python's types can express, each on its line, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

AUTHOR = Path(__file__).with_name("author.py")
ROOT = Path(__file__).parents[2]


def test_mypy_says_what_is_expected_and_nothing_else():
    expected = {
        number: line.partition("# error: ")[2]
        for number, line in enumerate(AUTHOR.read_text().splitlines(), 1)
        if "# error: " in line
    }
    assert len(expected) > 10
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", AUTHOR],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = re.findall(r"author\.py:(\d+): error: (.*)", checked.stdout)
    assert [int(number) for number, _ in told] == list(expected), checked.stdout + checked.stderr
    for number, said in told:
        assert said.startswith(expected[int(number)]), (number, said)
