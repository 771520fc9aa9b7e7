"""A play in a process of its own: `python -m tests.crash_points.player SCENARIO POINT FOLDER` prints its outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.crash_points.play import ROOT, Outcome, play
from tests.crash_points.scenarios import SCENARIOS


def play_apart(name: str, point: str, folder: Path) -> Outcome:
    """Play a scenario in a new process, whose variables and threads are its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash_points.player", name, point, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )
    if done.returncode:
        return Outcome(point, faults=[f"the player ended with {done.returncode}: {done.stderr}"])
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(asdict(play(SCENARIOS[sys.argv[1]], sys.argv[2], Path(sys.argv[3])))))
