"""Queued runs drain in their order, and nothing is left of them but their rows."""

from __future__ import annotations

import pytest

from .gauge import Sample
from .load import growth, soak


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["thread", "process"])
def test_many_queued_runs_drain_and_nothing_is_left(tmp_path, placement, long_form):
    came = soak(tmp_path, runs=1000 if long_form else 60, placement=placement)
    assert came.faults == []
    assert came.longest_to_median <= 3


def test_growth_is_seen():
    def sample(at, *, server=0, descriptors=20, file=0):
        return Sample(at, server, 0, descriptors, 3, 8, 0, file, 0)

    assert growth([sample(at) for at in range(30)]) == []
    assert growth([sample(at, server=at << 20) for at in range(30)])
    assert growth([sample(at, server=at << 20, file=at << 20) for at in range(30)]) == []
    assert growth([sample(at, descriptors=20 + at) for at in range(30)])
