"""A served file, under both placements."""

from __future__ import annotations

from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.state.verify import verify


@pytest.fixture(params=["thread", "process"])
def placement(request):
    return request.param


@pytest.fixture
def server(tmp_path, placement):
    """A server of a new file; when the test is over the file must tell one story."""
    project = tmp_path / "project"
    project.mkdir()
    served = pw.start(database=tmp_path / "s.sqlite", project=project, server=placement)
    yield served
    served.stop()
    with closing(open_read_only(tmp_path / "s.sqlite")) as connection:
        assert [finding for finding in verify(connection) if finding.severity == "error"] == []


@pytest.fixture
def rows_of():
    """Ask a file by SQL."""

    def ask(path, query, *parameters):
        with closing(open_read_only(path)) as connection:
            return connection.execute(query, parameters).fetchall()

    return ask


@pytest.fixture
def rows(server, rows_of):
    """Ask the served file by SQL."""
    return lambda query, *parameters: rows_of(server.database, query, *parameters)
