"""Servers of both placements with a project in which resource managers lie as files, and ways to look at the rows."""

from __future__ import annotations

import textwrap
import time

import pytest

import pi_workflows_nb as pw
from tests.main_path.conftest import placement, rows, rows_of, server

__all__ = ["placement", "rows", "rows_of", "server"]

HEAD = """
import os, pathlib, signal, time
import pi_workflows_nb as pw
here = pathlib.Path.cwd()
"""


@pytest.fixture
def write(server):
    """Put a resource manager, or a workflow, into a file of the project."""

    def put(name, code, kind="resource_manager"):
        folder = server.project / ".pi" / f"{kind.replace('_', '-')}s"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.{kind}.py").write_text(HEAD + textwrap.dedent(code))

    return put


@pytest.fixture
def until():
    """Wait for something to come about, for as long as a busy machine may need."""

    def wait(true, seconds=60.0):
        give_up = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < give_up, "it did not come about"
            time.sleep(0.02)
        return found

    return wait


@pytest.fixture
def types():
    """The types of a resource's events, in order, less those of claims."""

    def of(resource):
        return [name for name in resource.events()["event_type"] if not name.startswith("lease.")]

    return of


@pytest.fixture
def payloads():
    """The payloads of a resource's events of one type."""

    def of(resource, event):
        frame = resource.events()
        return list(frame[frame["event_type"] == event]["payload"])

    return of


@pytest.fixture
def again(tmp_path, placement):
    """Serve the same file once more, after the server was stopped."""
    started = []

    def start():
        served = pw.start(database=tmp_path / "s.sqlite", project=tmp_path / "project", server=placement)
        started.append(served)
        return served

    yield start
    for served in started:
        served.stop()
