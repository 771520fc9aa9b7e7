"""`python -m tests.trials --count 200` kills at random, checks everything, and prints what was running at each kill.

With `--faults` faults are planted instead, to see that the checks find them. A trial that found something keeps its
folder and can be made again, as far as the machine's timing lets it, with `--seed` and `--first`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from . import phases
from .faulty import find_all
from .phases import Estimates
from .trial import Result, Trial, seed_of

PLACEMENTS = ("thread", "process")
ENOUGH = 0.05


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trials", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="trials in all (20)")
    parser.add_argument("--placement", choices=(*PLACEMENTS, "both"), default="both", help="of the server (both)")
    parser.add_argument("--seed", type=int, help="of the first trial of a call; random by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial (0)")
    parser.add_argument("--keep", type=Path, help="where folders of trials are made; those with a violation stay")
    parser.add_argument(
        "--faults", nargs="*", metavar="NAME", help="plant faults (these, or all), and see that the checks find them"
    )
    parser.add_argument("--verbose", action="store_true", help="tell each trial")
    return parser.parse_args()


def histogram(results: list[Result]) -> list[str]:
    """What was running at each kill, and who was killed."""
    strikes = [(result.placement, strike) for result in results for strike in result.strikes]
    count = len(strikes) or 1
    lines = [f"{'what was running':<34} {'kills':>6} {'share':>7} {'thread':>7} {'process':>8}"]
    for phase in phases.PHASES:
        hits = Counter(placement for placement, strike in strikes if strike.phase == phase)
        share = hits.total() / count
        mark = "" if phase not in phases.WANTED else "  enough" if share >= ENOUGH else "  TOO FEW"
        shown = f"{hits.total():>6} {share:>7.1%} {hits['thread']:>7} {hits['process']:>8}"
        lines.append(f"{phases.MEANING[phase]:<34} {shown}{mark}")
    stages = Counter(strike.stage for _, strike in strikes if strike.phase == "recovery")
    lines.append("recovery had come to: " + ", ".join(f"{name} {number}" for name, number in stages.most_common()))
    lines.append(
        "who was killed: "
        + ", ".join(
            f"{'+'.join(roles)} {number}"
            for roles, number in Counter(strike.roles for _, strike in strikes).most_common()
        )
    )
    for alive, text in ((True, "with its server alive"), (False, "with its server killed")):
        took = sorted(
            strike.recovered
            for placement, strike in strikes
            if strike.recovered is not None
            and (("kernel" if placement == "thread" else "server") not in strike.roles) is alive
        )
        if took:
            lines.append(
                f"from a kill to the next node's code, {text}: median {statistics.median(took):.2f} s,"
                f" longest {took[-1]:.2f} s"
            )
    return lines


def trials(chosen: argparse.Namespace, folder: Path, seed: int) -> int:
    placements = PLACEMENTS if chosen.placement == "both" else (chosen.placement,)
    estimates = {placement: Estimates() for placement in placements}
    results: list[Result] = []
    started = time.monotonic()
    try:
        for number in range(chosen.first, chosen.first + chosen.count):
            placement = placements[number % len(placements)]
            own = folder / f"t{number}"
            own.mkdir()
            result = Trial(own, placement, seed_of(seed, number), estimates[placement]).run()
            results.append(result)
            if result.violations:
                print(f"{result}\n    kept: {own}", flush=True)
            else:
                shutil.rmtree(own, ignore_errors=True)
                if chosen.verbose:
                    print(result, flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    for line in histogram(results):
        print(line)
    bad = sum(bool(result.violations) for result in results)
    kills = sum(len(result.strikes) for result in results)
    print(
        f"{len(results)} trials from seed {seed}, {kills} kills, {bad} trials with violations,"
        f" {(time.monotonic() - started) / 60:.1f} min"
    )
    return 1 if bad else 0


def main() -> int:
    chosen = options()
    seed = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pw-", dir=chosen.keep))
    try:
        if chosen.faults is not None:
            return find_all(folder, seed, chosen.faults)
        return trials(chosen, folder, seed)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


if __name__ == "__main__":
    sys.exit(main())
