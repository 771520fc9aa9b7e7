"""One rule out of a copy of the package, and its test in that copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.deleted_rules.rules import Deleted

ROOT = Path(__file__).parents[2]
FAILED = 1
"""What pytest ends with when a test has failed; other numbers say that it could not try."""


@dataclass(frozen=True)
class Tried:
    """`red` when the test has noticed; else `said` tells what it printed."""

    deleted: Deleted
    red: bool
    said: str


def copy(folder: Path) -> Path:
    """The package and its tests, to be spoilt."""
    for name in ("pi_workflows_nb", "tests", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def attempt(deleted: Deleted, folder: Path, patience: float = 300.0) -> Tried:
    """Take a rule out of the copy in `folder`, run its test there, and put it back."""
    path = folder / "pi_workflows_nb" / deleted.file
    whole = path.read_text()
    assert whole.count(deleted.old) == 1, (
        f"{deleted.rule}: {deleted.file} holds its lines {whole.count(deleted.old)} times"
    )
    path.write_text(whole.replace(deleted.old, deleted.new))
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{deleted.test}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
        )
    finally:
        path.write_text(whole)
    return Tried(deleted, done.returncode == FAILED, done.stdout[-1500:] + done.stderr[-500:])
