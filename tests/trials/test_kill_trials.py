"""The short form of the kill trials: whoever is killed, and whenever, the run ends as if nobody had been."""

from __future__ import annotations

import os

import pytest

from .phases import Estimates
from .trial import Trial, seed_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfds to signal exactly whom it means"),
]
LONG_ROUNDS = 30


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("placement", ["thread", "process"])
@pytest.mark.parametrize("number", range(3))
def test_a_run_survives_kills_at_random_moments(tmp_path, placement, number, long_form):
    estimates = Estimates()
    for each in range(LONG_ROUNDS if long_form else 1):
        folder = tmp_path / f"t{each}"
        folder.mkdir()
        result = Trial(folder, placement, seed_of(f"{placement}-{number}", each), estimates).run()
        print(result)
        assert result.strikes
        assert not result.violations, str(result)
