"""`python -m tests.crash_points` kills a server before and after each commit of all scenarios, and prints the count."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from .enumeration import enumerate_points
from .scenarios import SCENARIOS


def main() -> int:
    """1 when a play did not end as the undisturbed one did."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash_points", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--workers", type=int, default=2, help="plays at a time (2)")
    parser.add_argument("--keep", type=Path, help="where folders of plays are made; those that went wrong stay")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="crash-points-"))
    events: set[str] = set()
    points = failed = 0
    begun = time.monotonic()
    for name in options.names or SCENARIOS:
        report = enumerate_points(name, folder, workers=options.workers)
        print(
            f"{name:<26} {report.commits:>4} commits {report.points:>4} points {report.unreached:>3} not reached"
            f" {len(report.faults):>3} faults",
            flush=True,
        )
        for text in report.faults[:5]:
            print(f"    {text[:1500]}", flush=True)
        events |= report.events
        points += report.points
        failed += len(report.faults)
    print(f"{points} points, {failed} faults, {time.monotonic() - begun:.0f} s; visited: {', '.join(sorted(events))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
