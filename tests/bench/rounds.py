"""Contestants measured in turns, so that what slows the machine for a while slows them all."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .environments import python_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Contestant:
    """A program that measures itself on a fresh file and prints `{"value": …}` or `{"finished": …}`.

    `environment` names a neighbour, or is None for this interpreter.
    """

    command: tuple[str, ...]
    number: int = 1
    extra: tuple[str, ...] = ()
    environment: str | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def measure(self, folder: Path) -> float:
        """One figure: a rate, or seconds."""
        python = python_of(self.environment) if self.environment else Path(sys.executable)
        with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as fresh:
            program = [python, *(part.replace("{db}", f"{fresh}/state.sqlite") for part in self.command)]
            program = [str(part).replace("{n}", str(self.number)) for part in program]
            started = time.monotonic()
            result = subprocess.run(
                [*program, *self.extra],
                cwd=ROOT,
                env={**os.environ, **self.variables, "PYTHONWARNINGS": "ignore"},
                stdout=subprocess.PIPE,
                check=True,
                timeout=900,
                text=True,
            )
        answer = json.loads(result.stdout.splitlines()[-1])
        return answer["value"] if "value" in answer else answer["finished"] - started


Figures = dict[str, list[float]]


def in_turns(
    contestants: dict[str, Contestant], rounds: int, folder: Path, say: Callable[[str], None] = lambda _: None
) -> Figures:
    """`rounds` figures of each; every round starts with another contestant. One that fails is left out, and said."""
    figures: Figures = {name: [] for name in contestants}
    for number in range(rounds):
        names = list(figures)
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            say(f"round {number + 1} of {rounds}: {name}")
            try:
                figures[name].append(contestants[name].measure(folder))
            except (subprocess.SubprocessError, ValueError, IndexError, KeyError) as error:
                print(f"{name} left out: {error}", file=sys.stderr)
                del figures[name]
    return figures


def ratio(figures: Figures, ours: str, other: str) -> tuple[float, float, float] | None:
    """Median, least and greatest ratio of figures taken in the same round; None where one is missing."""
    if not figures.get(ours) or not figures.get(other):
        return None
    pairs = sorted(a / b for a, b in zip(figures[ours], figures[other], strict=True))
    return statistics.median(pairs), pairs[0], pairs[-1]
