"""The linters and the type checker, as tests: `pytest` is the one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def passes(*command: str) -> None:
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if result.returncode:
        pytest.fail(result.stdout, pytrace=False)


def test_ruff_finds_nothing():
    passes("-m", "ruff", "check", ".")


def test_everything_is_formatted():
    passes("-m", "ruff", "format", "--check", ".")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_types_are_right():
    passes("-m", "mypy")


def test_rooms_import_downwards_only():
    passes("-c", "from importlinter.cli import lint_imports_command as check; check()")
