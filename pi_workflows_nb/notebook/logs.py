"""What nodes printed, read from the files beside the state file.

An attempt that printed something and ended has a file of its own name. What the present attempt of a run printed so
far, or the last one before its runner died, stands under the name of the runner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from . import frames
from .arrays import TEXT
from .frame_definitions import FRAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .filters import Filters
    from .reader import Reader

_ATTEMPTS: Final = "SELECT a.run_id, a.node_id, a.attempt_id, a.attempt_number FROM node_attempts a"
# The runner's file belongs to the newest attempt that it started.
_RUNNERS: Final = """
    SELECT w.worker_epoch, (SELECT a.attempt_id FROM node_attempts a WHERE a.run_id = w.run_id
        AND a.started_at >= w.started_at AND a.started_at <= ifnull(w.finished_at, a.started_at)
        ORDER BY a.started_at DESC, a.rowid DESC LIMIT 1)
    FROM run_workers w WHERE w.worker_epoch = ?
"""


def folder(database: Path) -> Path:
    """Where the logs of a state file lie."""
    return database.with_name(database.name + ".d") / "logs"


def read(reader: Reader, filters: Filters, attempts: list[str] | None, limit: int | None) -> pd.DataFrame:
    """One row a line of the chosen attempts."""
    names = {path.stem for path in folder(reader.path).glob("*.log")}
    rows: list[tuple[Any, ...]] = []
    unfinished: dict[str, str] = {}
    if names:
        conditions, parameters = frames.conditions(FRAMES["attempts"], replace(filters, limit=None))
        if attempts is not None:
            conditions.append(f"a.attempt_id IN ({frames.marks(attempts)})")
            parameters.extend(attempts)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        with reader.snapshot() as connection:
            rows = connection.execute(f"{_ATTEMPTS}{where} ORDER BY a.started_at, a.rowid", parameters).fetchall()
            for name in names - {row[2] for row in rows}:
                unfinished |= {attempt: epoch for epoch, attempt in connection.execute(_RUNNERS, (name,)).fetchall()}
    return _frame(reader.path, rows, names, unfinished, limit)


def _frame(
    database: Path, rows: list[tuple[Any, ...]], names: set[str], unfinished: dict[str, str], limit: int | None
) -> pd.DataFrame:
    columns: list[list[Any]] = [[], [], [], [], [], []]
    for run_id, node_id, attempt_id, number in rows:
        name = attempt_id if attempt_id in names else unfinished.get(attempt_id)
        if name is None:
            continue
        for position, text in enumerate(_lines(folder(database) / f"{name}.log"), start=1):
            for column, value in zip(columns, (run_id, node_id, attempt_id, number, position, text), strict=True):
                column.append(value)
    if limit is not None:
        columns = [column[len(column) - limit if limit < len(column) else 0 :] for column in columns]
    named = dict(zip(("run_id", "node_id", "attempt_id", "attempt_number", "line", "text"), columns, strict=True))
    result = pd.DataFrame(
        {
            name: pd.array(np.array(values, dtype=np.int64), dtype="Int64")
            if name in {"attempt_number", "line"}
            else pd.array(values, dtype=TEXT)
            for name, values in named.items()
        }
    )
    result.attrs["source"] = f"one row a line of {folder(database)}/<attempt id>.log, with node_attempts"
    return result


def _lines(path: Path) -> Iterator[str]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return iter(())
    return iter(content.decode("utf-8", "replace").removesuffix("\n").split("\n") if content else ())
