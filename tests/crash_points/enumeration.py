"""All points of a scenario, in turn: each has to end as the undisturbed play did."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from .play import Outcome
from .player import play_apart


@dataclass
class Report:
    """What came of one scenario: the points at which its server died, and what went wrong."""

    name: str
    commits: int = 0
    points: int = 0
    unreached: int = 0
    events: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def _play(name: str, point: str, folder: Path) -> Outcome:
    outcome = play_apart(name, point, folder)
    if not outcome.faults:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def events_of(outcome: Outcome) -> set[str]:
    """The types of events that the commits of a play were about."""
    return {event for line in outcome.commits for event in line.partition(" ")[2].split(",")} - {"-"}


def enumerate_points(name: str, folder: Path, *, workers: int = 2, every: int = 1, offset: int = 0) -> Report:
    """Play a scenario undisturbed, then once for each side of each of its commits; `every` third, say, only.

    How many commits a play makes differs a little, since proposals that meet share one: points are added until two in
    a row were not reached any more.
    """
    report = Report(name)
    first = _play(name, "none", folder / f"{name}-none")
    report.faults += [f"undisturbed: {text}" for text in first.faults]
    if report.faults:
        return report
    report.events |= events_of(first)
    report.commits = len(first.commits)
    with ThreadPoolExecutor(workers) as pool:

        def judge(points: Sequence[str]) -> int:
            """Play these; gives how many of them were not reached."""
            unreached = 0
            plays = [pool.submit(_play, name, point, folder / f"{name}-{point.replace(':', '-')}") for point in points]
            for done in as_completed(plays):
                outcome = done.result()
                report.faults += [f"{outcome.point}: {text}" for text in outcome.faults]
                report.events |= events_of(outcome)
                if not outcome.reached:
                    unreached += 1
                else:
                    report.points += 1
                if not outcome.faults and outcome.story != first.story:
                    report.faults.append(f"{outcome.point}: it ended as {outcome.story}, undisturbed as {first.story}")
            report.unreached += unreached
            return unreached

        judge(list(_points(1, report.commits))[offset::every])
        if every == 1:
            number = report.commits + 1
            while judge(list(_points(number, number))) < 2:
                number += 1
    return report


def _points(first: int, last: int) -> Iterator[str]:
    for number in range(first, last + 1):
        yield f"before:{number}"
        yield f"after:{number}"
