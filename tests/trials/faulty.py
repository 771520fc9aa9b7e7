"""Trials with a planted fault: how many it takes until the checks find it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .faults import FAULTS, HARMLESS, WORDS
from .phases import Estimates
from .trial import Trial, seed_of

MOST = 50
"""Within so many trials each fault has to be found."""

HARMLESS_TRIALS = 10


TELLING = ("verify:", "run:", "steps:", "executions:", "ledger:", "effects:", "claims:", "servers:", "lost:", "end:")
"""Where a finding of a check begins. A cell that raised, or a trial that broke, is no finding of the planted fault."""


@dataclass
class Search:
    """Trials with one fault. `found` are the texts of the checks that found it, `beside` what else went wrong."""

    trials: int = 0
    found: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)


def search(folder: Path, fault: str, seed: int, most: int) -> Search:
    """Run trials with a fault until a check finds it."""
    estimates, searched = Estimates(), Search()
    while searched.trials < most and not searched.found:
        own = folder / f"f{searched.trials}"
        own.mkdir()
        result = Trial(own, "thread", seed_of(seed, searched.trials), estimates, fault).run()
        searched.trials += 1
        for text in result.violations:
            (searched.found if text.startswith(TELLING) else searched.beside).append(text)
        if (words := own / WORDS).exists():
            searched.words.update(words.read_text().splitlines())
        shutil.rmtree(own, ignore_errors=True)
    return searched


def find_all(folder: Path, seed: int, names: Sequence[str]) -> int:
    """Plant each fault in turn and print what found it; 1 when one was not found, or a harmless one was accused."""
    failed = 0
    for name in names or [*FAULTS, *HARMLESS]:
        harmless = name in HARMLESS
        searched = search(folder, name, seed, HARMLESS_TRIALS if harmless else MOST)
        told = f"{name}: {'found' if searched.found else 'nothing found'} in trial {searched.trials}"
        # That nothing is found says something only where the thing was tried.
        right = (not searched.found and bool(searched.words)) if harmless else bool(searched.found)
        failed |= not right
        print(f"{told}, {'as it should be' if right else 'WHICH IS WRONG'}")
        for word, count in searched.words.items():
            print(f"    an outcome that came late was {word} ({count} times)")
        for text in searched.found[:4]:
            print(f"    found by {text[:200]}")
        for text in searched.beside:
            print(f"    beside it: {text[:300]}", flush=True)
    return failed
