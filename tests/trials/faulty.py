"""Trials with a planted fault: how many it takes until the checks find it."""

from __future__ import annotations

import shutil
from pathlib import Path

from .faults import FAULTS, HARMLESS
from .phases import Estimates
from .trial import Result, Trial, seed_of

MOST = 50
"""Within so many trials each fault has to be found."""

HARMLESS_TRIALS = 10


def search(folder: Path, fault: str, seed: int, most: int) -> tuple[int, Result | None]:
    """Trials with a fault until one finds it: how many it took, and that one's result, None when none did."""
    estimates = Estimates()
    for number in range(most):
        own = folder / f"f{number}"
        own.mkdir()
        result = Trial(own, "thread", seed_of(seed, number), estimates, fault).run()
        shutil.rmtree(own, ignore_errors=True)
        if result.violations:
            return number + 1, result
    return most, None


def find_all(folder: Path, seed: int) -> int:
    """Plant each fault in turn and print what found it; 1 when one was not found, or a harmless one was accused."""
    failed = 0
    for fault in FAULTS:
        count, result = search(folder, fault, seed, MOST)
        if result is None:
            print(f"{fault}: NOT FOUND in {count} trials")
            failed = 1
        else:
            print(f"{fault}: found in trial {count} by")
            for text in result.violations[:4]:
                print(f"    {text[:200]}")
    for harmless in HARMLESS:
        count, result = search(folder, harmless, seed, HARMLESS_TRIALS)
        print(f"{harmless}: {f'nothing found in {count} trials, as it should be' if result is None else result}")
        failed |= result is not None
    return failed
