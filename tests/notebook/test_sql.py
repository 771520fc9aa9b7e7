"""SQL by hand: typed results, the views, a read-only database object that leaves no statement open."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing

import pandas as pd
import pytest

from pi_workflows_nb.notebook.frame_definitions import FRAMES
from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.wire.errors import QueryError
from tests.notebook.conftest import Rows


@pytest.fixture
def state(filled):
    with open_state(filled) as opened:
        yield opened


def test_results_are_typed(state):
    frame = state.sql("select node_id, count(*) n, avg(attempt_number) m from node_attempts group by 1 order by 1")
    assert [str(dtype) for dtype in frame.dtypes] == ["string", "Int64", "Float64"]
    assert frame.set_index("node_id").loc["judge", "n"] == 2


def test_missing_numbers_stay_whole(state):
    frame = state.sql("select 1 as n union all select null")
    assert frame["n"].dtype == pd.Int64Dtype()
    assert frame["n"][1] is pd.NA


def test_times_and_digests_are_told_by_their_names(state):
    frame = state.sql("select created_at, finished_at, input_hash from runs order by created_at limit 1")
    assert frame["created_at"][0] == pd.Timestamp("2026-01-01T00:00:00Z")
    assert str(frame["finished_at"].dtype) == "datetime64[ms, UTC]"
    assert len(frame["input_hash"][0]) == 64


def test_parameters_fill_in(state):
    assert len(state.sql("select 1 from runs where status = ?", ["failed"])) == 1
    assert len(state.sql("select 1 from runs where status = :s", {"s": "failed"})) == 1


def test_columns_of_one_name_are_told_apart(state):
    assert list(state.sql("select 1 as a, 2 as a").columns) == ["a", "a_2"]


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_each_frame_has_a_view_of_the_same_columns(state, name):
    view = state.sql(f"select * from {name}_v")
    assert list(view.columns) == [column.name for column in FRAMES[name].columns]
    assert len(view) == len(getattr(state, name)())


def test_views_show_the_words_of_frames(state):
    assert "server" in set(state.sql("select distinct actor_type from events_v")["actor_type"])


@pytest.mark.parametrize(
    "sql",
    [
        "select * from nothing",
        "selec 1",
        "delete from runs",
        "create table x(a)",
        "insert into projects values ('p', '/p', 1)",
        "select 1; select 2",
        "pragma journal_mode = delete",
        "vacuum",
    ],
)
def test_what_cannot_be_answered_is_a_query_error_and_changes_nothing(state, filled, sql):
    before = filled.read_bytes()
    try:
        state.sql(sql)
    except QueryError:
        pass
    assert filled.read_bytes() == before
    assert len(state.runs()) == 6


def test_nothing_is_left_beside_a_file_at_rest(state, filled):
    state.sql("select 1")
    state.runs()
    list(state.db["runs"].rows)
    assert [path.name for path in filled.parent.iterdir() if path.name.startswith("filled.sqlite-")] == []


def test_the_database_object_reads_tables_and_views(state):
    database = state.db
    assert database["runs"].count == 6
    assert [row["run_id"] for row in database.query("select run_id from runs_v where status = ?", ["failed"])] == [
        "run-failed"
    ]
    assert database is state.db


def test_the_database_object_cannot_write(state):
    with pytest.raises(sqlite3.OperationalError):
        state.db["runs"].insert({"run_id": "x"})
    with pytest.raises(sqlite3.OperationalError):
        state.db.execute("create table x(a)")
    state.db.execute("pragma query_only = off")
    with pytest.raises(sqlite3.OperationalError):
        state.db.execute("delete from runs")


def test_the_database_object_leaves_no_statement_open(state):
    rows = state.db.execute("select * from events")
    first = rows.fetchone()
    assert first is not None
    assert len(rows.fetchmany(2)) == 2
    assert len(list(rows)) == 8 - 3
    assert rows.fetchone() is None
    assert rows.fetchall() == []
    assert not state.db.conn.in_transaction


def test_a_result_that_nobody_reads_does_not_hold_the_log(filled):
    with closing(Rows(filled)) as writer, open_state(filled) as state:
        writer.project("/srv/new")
        rows = state.db.execute("select * from events")
        assert rows.fetchone() is not None
        assert next(state.db.query("select * from projects"))
        writer.project("/srv/newer")
        assert writer.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert len(rows.fetchall()) == 7


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"


@pytest.mark.parametrize("ask", ["sql", "db"])
def test_an_interrupt_ends_a_long_query_within_half_a_second(state, ask):
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        state.sql(ENDLESS) if ask == "sql" else state.db.execute(ENDLESS)
    assert time.monotonic() - sent[0] < 0.5
    timer.join()
    assert len(state.runs()) == 6


def test_the_source_is_told(state):
    assert state.sql("select 1").attrs["source"] == "select 1"
