"""The package as a person installs it: complete, and able to run the quickstart with nothing else there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["state/schema.sql", "state/shape.json", "py.typed", "_notebooks/01_quickstart.ipynb"])
def test_the_wheel_carries_what_is_no_code(plain_environment, name):
    assert (plain_environment.packages / "pi_workflows_nb" / name).is_file()


def test_every_notebook_is_carried(plain_environment):
    carried = {path.name for path in (plain_environment.packages / "pi_workflows_nb/_notebooks").glob("*.ipynb")}
    assert carried == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_jupyterlab_is_an_extra(plain_environment):
    assert not (plain_environment.packages / "jupyterlab").exists()


def test_the_demo_runs_in_an_empty_folder(plain_environment, tmp_path):
    printed = plain_environment.run("pi-workflows-nb", "demo", cwd=tmp_path, timeout=120)
    assert "pi-workflows-nb lab" in printed
    assert "Traceback" not in printed


def test_nothing_tracked_names_a_registry():
    """Pins are versions; where packages come from is the reader's choice."""
    words = "index-url|find-links|extra-index|https?://[^ ]*(simple|packages)/"
    where = [":!tests/house", ":!*.ipynb"]
    found = subprocess.run(
        ["git", "grep", "-nIE", words, "--", ".", *where], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
