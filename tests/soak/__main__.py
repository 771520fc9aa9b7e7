"""`python -m tests.soak` queues 1,000 runs for eight runners and prints waits and curves; `--minutes 30` goes on."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from .load import soak

LINES = 24


def main() -> int:
    """1 when something was lost, left, or grew, or when a run waited too long."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="queued at once (1000)")
    parser.add_argument("--minutes", type=float, help="queue so many again and again for this time")
    parser.add_argument("--runners", type=int, default=8, help="at a time (8)")
    parser.add_argument("--placement", choices=("thread", "process"), default="process", help="of the server (process)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    came = soak(folder, runs=given.runs, minutes=given.minutes, runners=given.runners, placement=given.placement)
    print(
        f"{'s':>7} {'ended':>7} {'server MB':>10} {'nursery MB':>11}"
        f" {'descriptors':>12} {'threads':>8} {'runners':>8} {'WAL MB':>7}"
    )
    for sample in came.samples[:: max(1, len(came.samples) // LINES)]:
        server, nursery, log = (size / 2**20 for size in (sample.server_bytes, sample.nursery_bytes, sample.log_bytes))
        print(
            f"{sample.at:>7.1f} {sample.ended:>7} {server:>10.1f} {nursery:>11.1f}"
            f" {sample.descriptors:>12} {sample.threads:>8} {sample.runners:>8} {log:>7.1f}"
        )
    if given.minutes is None and came.longest_to_median > 3:
        came.faults.append("a run waited more than three times the median")
    print(
        f"{came.runs} runs in {came.seconds:.1f} s; waits: median {statistics.median(came.waits):.2f} s, longest"
        f" {max(came.waits):.2f} s ({came.longest_to_median:.2f} times); {len(came.faults)} faults"
    )
    for text in came.faults[:20]:
        print(f"    {text}")
    return 1 if came.faults else 0


if __name__ == "__main__":
    sys.exit(main())
