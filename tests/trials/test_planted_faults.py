"""What the trials check is worth something: faults that are planted into a server are found.

Those that need their moment to do harm (a skipped fence, an answer before its commit) may take dozens of trials:
`python -m tests.trials --faults` plants them all.
"""

from __future__ import annotations

import os

import pytest

from .faulty import search

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfds to signal exactly whom it means"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("blob dropped", ("verify:",)),
        ("generation reused", ("claims:",)),
        ("event missing", ("verify:",)),
    ],
)
def test_a_planted_fault_is_found(tmp_path, fault, check, long_form):
    searched = search(tmp_path, fault, seed=1, most=50 if long_form else 8)
    assert any(text.startswith(check) for text in searched.found), searched
