"""The floor: what SQLite alone gives a loop that makes every step durable.

    python floor.py DB steps|runs N [COMMITS_PER_STEP]

One process, one connection, WAL, `synchronous=FULL`. A step inserts its row and moves its run's cursor in one commit;
with two commits a step, an intent goes first. `steps` is one run of N steps, `runs` is N runs of five.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import contextmanager

TABLES = """
    create table runs (id text primary key, state text, next_step int, changed real) without rowid;
    create table steps (run_id text, number int, output text, done real, primary key (run_id, number)) without rowid;
    create index runs_by_state on runs (state, changed);
"""


def open_file(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.executescript(TABLES)
    return connection


@contextmanager
def durable(connection: sqlite3.Connection):
    connection.execute("begin immediate")
    yield
    connection.execute("commit")


def run(connection: sqlite3.Connection, run_id: str, steps: int, commits_per_step: int) -> None:
    move = "update runs set next_step = ?, changed = ? where id = ?"
    with durable(connection):
        connection.execute("insert into runs values (?, 'running', 0, ?)", (run_id, time.time()))
    value = 0
    for number in range(steps):
        if commits_per_step == 2:
            with durable(connection):
                connection.execute(move, (number, time.time(), run_id))
        value += 1
        with durable(connection):
            row = (run_id, number, json.dumps({"x": value}), time.time())
            connection.execute("insert into steps values (?, ?, ?, ?)", row)
            connection.execute(move, (number + 1, time.time(), run_id))
    with durable(connection):
        connection.execute("update runs set state = 'done', changed = ? where id = ?", (time.time(), run_id))


def main(path: str, mode: str, number: int, commits_per_step: int = 1) -> None:
    connection = open_file(path)
    started = time.perf_counter()
    if mode == "steps":
        run(connection, "only", number, commits_per_step)
    else:
        for index in range(number):
            run(connection, f"run-{index}", 5, commits_per_step)
    print(json.dumps({"value": number / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
