"""`python -m tests.bench` measures everything side by side and prints the table.

Ratios are medians over rounds; each round takes one figure of every contestant, on a fresh file. Figures of the
neighbours need their environments, which are made on first use.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import statistics
import sys
import tempfile
from pathlib import Path

import psutil

from .rounds import Figures, in_turns, ratio
from .rows import ROWS, Row, contestants


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    groups = contestants(1)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(groups)}; all by default")
    parser.add_argument("--rounds", type=int, default=5, help="figures of each contestant (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of steps and runs (1.0)")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave out a contestant")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--json", type=Path, help="also write every figure there")
    chosen = parser.parse_args()
    if unknown := set(chosen.groups) - set(groups):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    return chosen


def filesystem(folder: Path) -> str:
    inside = [part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)]
    return max(inside, key=lambda part: len(part.mountpoint)).fstype if inside else "unknown"


def shown(figures: list[float], unit: str) -> str:
    figure = statistics.median(figures) * (1000 if unit == "ms" else 1)
    return f"{figure:,.1f} {unit}" if figure < 100 else f"{figure:,.0f} {unit}"


def lines(row: Row, figures: Figures) -> list[str]:
    if not figures.get(row.name):
        return []
    first = f"{row.title:<40} {shown(figures[row.name], row.unit):>14}"
    texts = []
    for goal in row.goals:
        found = ratio(figures, row.name, goal.other)
        if found is None:
            continue
        median, least, greatest = found
        texts.append(f"{median:5.2f} × {goal.other} ({least:.2f}–{greatest:.2f}){goal.verdict(median)}")
    if row.limit is not None:
        mark = "reached" if statistics.median(figures[row.name]) <= row.limit else "MISSED"
        texts.append(f"to reach ≤ {row.limit:g}: {mark}")
    return [f"{first}   {text}" if not index else f"{'':<55}   {text}" for index, text in enumerate(texts or [""])]


def main() -> None:
    chosen = options()
    figures: Figures = {}

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    for name, group in contestants(chosen.scale).items():
        if chosen.groups and name not in chosen.groups:
            continue
        racing = {name: each for name, each in group.items() if name not in chosen.without}
        figures |= in_turns(racing, chosen.rounds, chosen.folder, say)
    say("")
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {psutil.cpu_count()} cores, "
        f"{filesystem(chosen.folder)}, medians of {chosen.rounds} rounds (least–greatest)"
    )
    for row in ROWS:
        for line in lines(row, figures):
            print(line.rstrip())
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
