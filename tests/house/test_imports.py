"""Importing the package is cheap and starts nothing; a runner's import pulls no notebook code and no SQLite."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "asyncio, sqlite3, json"
NOTEBOOK_CODE = {"pandas", "numpy", "ipywidgets", "anywidget", "IPython", "ipykernel", "traitlets", "jupyter_client"}
LATE = NOTEBOOK_CODE | {"sqlite_utils", "rich", "click", "cloudpickle", "nest_asyncio2", "altair", "itables"}


def ask(code: str) -> object:
    """What a fresh interpreter prints, read as JSON."""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(result.stdout)


def modules_after(imports: str) -> set[str]:
    return set(ask(f"import {imports}; import json, sys; print(json.dumps(list(sys.modules)))"))


def cpu_of(imports: str) -> float:
    """CPU seconds: other processes on the machine do not count."""
    code = f"import time; s = time.process_time(); import {imports}; print(time.process_time() - s)"
    return float(ask(code))


def test_importing_the_package_pulls_nothing_heavy():
    assert modules_after("pi_workflows_nb") & LATE == set()


def test_a_server_is_started_and_asked_without_what_only_frames_and_views_need():
    assert modules_after("pi_workflows_nb.notebook.server, pi_workflows_nb.server.thread") & NOTEBOOK_CODE == set()


def test_importing_the_package_costs_little():
    """At most 1.5 × `import asyncio, sqlite3, json`, by the best of interleaved pairs: load only ever adds."""
    ours, base = [], []
    for _ in range(30):
        ours.append(cpu_of("pi_workflows_nb"))
        base.append(cpu_of(BASE))
        if len(ours) >= 5 and min(ours) <= 1.5 * min(base):
            return
    pytest.fail(f"import took {min(ours):.4f} s of CPU, the floor {min(base):.4f} s", pytrace=False)


def test_importing_the_package_starts_nothing():
    code = (
        "import os, threading, json; fds = set(os.listdir('/dev/fd')); import pi_workflows_nb; "
        "print(json.dumps([threading.active_count(), len(set(os.listdir('/dev/fd')) - fds)]))"
    )
    assert ask(code) == [1, 0]


def test_every_public_name_can_be_had():
    code = (
        "import json, pi_workflows_nb as pw; "
        "print(json.dumps([name for name in pw.__all__ if getattr(pw, name, None) is None]))"
    )
    assert ask(code) == []


def test_public_names_are_listed():
    assert ask("import json, pi_workflows_nb as pw; print(json.dumps(sorted(set(pw.__all__) - set(dir(pw)))))") == []


@pytest.mark.parametrize("module", ["entry", "nursery", "inspection"])
def test_a_runner_pulls_neither_notebook_code_nor_sqlite(module):
    assert modules_after(f"pi_workflows_nb.runner.{module}") & (NOTEBOOK_CODE | {"sqlite3"}) == set()


def test_wire_needs_neither_sqlite_nor_a_loop():
    found = modules_after("pi_workflows_nb.wire.canonical_json, pi_workflows_nb.wire.identities")
    assert found & (NOTEBOOK_CODE | {"sqlite3", "asyncio"}) == set()
