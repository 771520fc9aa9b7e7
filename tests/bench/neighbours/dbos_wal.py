"""DBOS with a SQLite system database, put into WAL beforehand (it ships with the slower rollback journal).

python dbos_wal.py DB steps|runs N
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time

path, mode, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = sqlite3.connect(path)
connection.execute("pragma journal_mode = wal")
connection.close()

from dbos import DBOS  # noqa: E402

DBOS(
    config={
        "name": "bench",
        "system_database_url": f"sqlite:///{path}",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
)


@DBOS.step()
def add(value):
    return value + 1


@DBOS.workflow()
def count(steps):
    value = 0
    for _ in range(steps):
        value = add(value)
    return value


DBOS.launch()
assert count(1) == 1
started = time.perf_counter()
if mode == "steps":
    assert count(number) == number
else:
    for _ in range(number):
        assert count(5) == 5
seconds = time.perf_counter() - started
connection = sqlite3.connect(path)
assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
connection.close()
print(json.dumps({"value": number / seconds}))
DBOS.destroy()
