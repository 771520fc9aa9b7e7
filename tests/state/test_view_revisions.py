"""Revisions of what is shown of a run: what changed since one that is kept, a snapshot since any other."""

from __future__ import annotations

from contextlib import closing

import pytest

from pi_workflows_nb.state import viewer
from tests.notebook.conftest import T0, Rows, definition


@pytest.fixture
def connection(state_file):
    with closing(Rows(state_file)) as rows:
        rows.run("run", snapshot=definition("one", {"a": "compute"}), finished=T0 + 1, output=1)
        viewer.initialize(rows.connection, "run", 1)
        yield rows.connection


def record(connection, count, *targets):
    for _ in range(count):
        viewer.record(connection, "run", targets or ("summary",), 1)


def test_the_parts_that_changed_are_told_once_each(connection):
    assert viewer.since(connection, "run", 1) == (1, [])
    record(connection, 2, "timeline")
    record(connection, 1, "summary", "graph")
    assert viewer.since(connection, "run", 1) == (4, ["graph", "summary", "timeline"])
    assert viewer.since(connection, "run", 3) == (4, ["graph", "summary"])
    assert viewer.since(connection, "run", 4) == (4, [])


def test_a_revision_that_is_not_kept_or_never_was_needs_a_snapshot(connection):
    record(connection, 1000)
    newest, retained = connection.execute(
        "SELECT presentation_revision, retained_from_revision FROM viewer_runs"
    ).fetchone()
    assert newest == 1001
    assert newest - retained + 1 >= viewer.RETAINED
    assert viewer.since(connection, "run", newest - viewer.RETAINED) == (newest, ["summary"])
    assert viewer.since(connection, "run", retained - 1) == (newest, ["summary"])
    for after in (None, -1, 0, retained - 2, newest + 1):
        assert viewer.since(connection, "run", after) == (newest, None)
    assert viewer.since(connection, "another", 1) == (0, None)


def test_a_gap_needs_a_snapshot(connection):
    record(connection, 10)
    connection.execute("DELETE FROM viewer_deltas WHERE presentation_revision = 5")
    assert viewer.since(connection, "run", 3) == (11, None)
    assert viewer.since(connection, "run", 5) == (11, ["summary"])
