"""Environments built from what the repository says, once per session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment. Commands find its programs first, and Jupyter's folders inside it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11") or sys.executable
        subprocess.run([python, "-m", "venv", folder], check=True)
        return cls(folder)

    @property
    def packages(self) -> Path:
        return next((self.folder / "lib").glob("python*/site-packages"))

    def run(self, *command: str, cwd: Path, timeout: float = 600) -> str:
        """What the command prints; fails the test with it when the command fails."""
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        variables |= {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **{
                f"{name}": str(self.folder / "jupyter" / name.lower())
                for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
            },
        }
        result = subprocess.run(
            command,
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if result.returncode:
            pytest.fail(f"{' '.join(command)} gave {result.returncode}:\n{result.stdout}", pytrace=False)
        return result.stdout


@pytest.fixture(scope="session")
def plain_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The package as `pip install .` brings it, with the pinned versions of what it needs."""
    made = Environment.make(tmp_path_factory.mktemp("plain") / "venv")
    made.run("pip", "install", "--quiet", ".", "-c", "constraints.txt", cwd=ROOT)
    return made


@pytest.fixture(scope="session")
def binder_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What Binder builds from the files in `binder/`: packages, then `postBuild`, both in the root."""
    made = Environment.make(tmp_path_factory.mktemp("binder") / "venv")
    made.run("pip", "install", "--quiet", "-r", "binder/requirements.txt", cwd=ROOT)
    made.run("binder/postBuild", cwd=ROOT)
    return made
