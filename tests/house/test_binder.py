"""Binder's files build an environment in which every notebook runs."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith(("#", ".["))]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;@/]+", line) for line in lines), "each line pins one version"
    return dict(line.split("==") for line in lines)


def as_text(output: dict) -> str:
    plain = output.get("text") or output.get("data", {}).get("text/plain") or output.get("traceback") or ""
    return plain if isinstance(plain, str) else "".join(plain)


def test_binder_reads_these_files():
    assert {path.name for path in BINDER.iterdir()} == {"requirements.txt", "runtime.txt", "postBuild"}
    assert (BINDER / "runtime.txt").read_text().strip() == "python-3.11"
    assert os.access(BINDER / "postBuild", os.X_OK)


def test_the_package_itself_comes_from_the_repository():
    assert ".[lab]" in (BINDER / "requirements.txt").read_text().splitlines()


def test_binder_and_ci_pin_the_same_versions():
    everything = pins(ROOT / "constraints.txt")
    assert pins(BINDER / "requirements.txt").items() <= everything.items()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb")))
def test_each_notebook_runs_in_what_binder_builds(binder_environment, tmp_path, name):
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder)
    execute = ("jupyter", "execute", "--inplace", "--allow-errors", name)
    binder_environment.run(*execute, cwd=folder, timeout=300)
    cells = json.loads((folder / name).read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    if any(output["output_type"] == "error" for output in outputs):
        pytest.fail("\n".join(map(as_text, outputs)), pytrace=False)
    assert all(cell["execution_count"] for cell in code)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everything_pinned_is_what_is_installed(binder_environment):
    listed = json.loads(binder_environment.run("pip", "list", "--format", "json", cwd=ROOT))
    installed = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in listed}
    pinned = {
        re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins(BINDER / "requirements.txt").items()
    }
    assert installed.keys() - pinned.keys() <= {"pip", "setuptools", "pi-workflows-nb"}
    assert pinned.items() <= installed.items()
