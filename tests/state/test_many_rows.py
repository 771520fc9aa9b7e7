"""Many rows by few statements."""

from __future__ import annotations

import sqlite3

import pytest

from pi_workflows_nb.state import many_rows

INSERT = "INSERT INTO t(a, b) VALUES (?, ?) ON CONFLICT(a) DO UPDATE SET b = excluded.b"


@pytest.fixture
def connection():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT NOT NULL)")
    yield connection
    connection.close()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 127, 200])
def test_every_row_is_written_once_in_order_with_its_clause(connection, count):
    many_rows.insert(connection, INSERT, [[number, "first"] for number in range(count)])
    many_rows.insert(connection, INSERT, {number: (number, str(number)) for number in range(count)}.values())
    rows = connection.execute("SELECT a, b FROM t ORDER BY rowid").fetchall()
    assert rows == [(number, str(number)) for number in range(count)]


def test_few_statements_are_executed(connection):
    executed: list[str] = []
    connection.set_trace_callback(executed.append)
    many_rows.insert(connection, INSERT, [(number, "x") for number in range(105)])
    assert sum(statement.startswith("INSERT") for statement in executed) == 4


def test_a_row_that_is_refused_raises_what_sqlite_says(connection):
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        many_rows.insert(connection, INSERT, [(1, "a"), (2, None)])
