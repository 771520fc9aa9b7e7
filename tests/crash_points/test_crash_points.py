"""A server killed at a commit is followed by one that ends everything in the same way."""

from __future__ import annotations

import pytest

from .enumeration import enumerate_points
from .scenarios import SCENARIOS

STRIDE = 9
"""The short form takes every ninth point, in each scenario others; `--long`, as the command, takes all."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_the_same_way_wherever_its_server_dies(name, tmp_path, request):
    offset = list(SCENARIOS).index(name) % STRIDE
    every = 1 if request.config.getoption("--long") else STRIDE
    report = enumerate_points(name, tmp_path, every=every, offset=0 if every == 1 else offset)
    assert report.faults == []
    assert report.points
