"""Frames: what the state file holds, as DataFrames with real dtypes.

Filters become SQL, one call is one consistent snapshot, and columns are built chunk by chunk without copies of rows.
"""

from __future__ import annotations

import datetime as dt
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import QueryError

from . import arrays, charts  # noqa: F401 - charts add `frame.pw`
from .arrays import CHUNK_ROWS
from .columns import Column
from .filters import Filters, Moment, Words
from .frame_definitions import FRAMES, PROJECT_AGGREGATES
from .frame_shape import Frame

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from .reader import Reader

_EPOCH: Final = pd.Timestamp(0, tz="UTC")
_TAGGED: Final = (
    "{run} IN (SELECT x.run_id FROM runs x JOIN blobs o ON o.blob_hash = x.launch_options_hash,"
    " json_each(CAST(o.content AS TEXT), '$.tags') t WHERE t.value = ?)"
)
_OF_WORKFLOW: Final = (
    "{run} IN (SELECT x.run_id FROM runs x JOIN workflow_definitions y USING (definition_digest)"
    " WHERE y.workflow_name IN ({marks}))"
)


def read(reader: Reader, name: str, filters: Filters, *, payloads: bool = False) -> pd.DataFrame:
    """One frame. Columns and dtypes are the same whatever was found.

    `QueryError` for a filter that the frame does not have or a value that cannot be.
    """
    frame = FRAMES[name]
    sql, parameters = _query(frame, filters, payloads=payloads)
    columns = [*frame.columns, *(payload.column for payload in frame.payloads if payloads)]
    with reader.snapshot() as connection:
        arrays = fetch(connection, sql, parameters, columns)
    result = _assembled(frame, columns, arrays)
    result.attrs["source"] = f"{frame.about}\n{sql}"
    return result


def fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], columns: Sequence[Column]) -> list[Any]:
    """The typed arrays of a query's columns."""
    parts: list[list[np.ndarray[Any, Any]]] = [[] for _ in columns]
    cursor = connection.execute(sql, parameters)
    while rows := cursor.fetchmany(CHUNK_ROWS):
        for position, column in enumerate(columns):
            parts[position].append(arrays.gather(column, rows, position))
    return [arrays.finish(column, part) for column, part in zip(columns, parts, strict=True)]


def _assembled(frame: Frame, columns: Sequence[Column], arrays: list[Any]) -> pd.DataFrame:
    by_name = {column.name: array for column, array in zip(columns, arrays, strict=True)}
    index: pd.Index[Any]
    if len(frame.index) == 1:
        index = pd.Index(by_name.pop(frame.index[0]), name=frame.index[0], copy=False)
    else:
        index = pd.MultiIndex.from_arrays([by_name.pop(name) for name in frame.index], names=list(frame.index))
    for name, array in by_name.items():
        if isinstance(array, np.ndarray) and array.dtype == object:
            # Decoded values that all happen to be texts are no text column.
            by_name[name] = pd.Series(array, index=index, dtype=object, copy=False)
    return pd.DataFrame(by_name, index=index, copy=False)


def _query(frame: Frame, filters: Filters, *, payloads: bool) -> tuple[str, list[Any]]:
    predicates, parameters = conditions(frame, filters)
    selected = [f"{column.packed} AS {column.name}" for column in frame.columns]
    source = frame.source
    if payloads:
        for payload in frame.payloads:
            selected.append(f"{payload.column.packed} AS {payload.column.name}")
            source += payload.join
    where = f" WHERE {' AND '.join(predicates)}" if predicates else ""
    sql = f"SELECT {', '.join(selected)} FROM {source}{where} ORDER BY {_order(frame, filters.order)}"
    if filters.limit is not None:
        sql += " LIMIT ?"
        parameters.append(_checked_limit(filters.limit))
    return sql, parameters


def _checked_limit(limit: Any) -> int:
    try:
        rows = operator.index(limit)
    except TypeError:
        rows = -1
    if rows < 0:
        raise QueryError(f"limit={limit!r}: it is a number of rows, 0 or more")
    return rows


def conditions(frame: Frame, filters: Filters) -> tuple[list[str], list[Any]]:
    """The predicates of the filters, and their parameters, over the source of a frame."""
    predicates: list[str] = []
    parameters: list[Any] = []

    def add(condition: str, *values: Any) -> None:
        predicates.append(condition)
        parameters.extend(values)

    if filters.project is not None and filters.project != "*":
        project = project_of(filters.project)
        if frame.project:
            add(frame.project, project)
        elif frame.aggregate:
            add(f"{frame.aggregate} IN ({PROJECT_AGGREGATES})", project, project)
    if filters.run is not None:
        _of_runs(frame, run_ids(filters.run), add)
    if filters.status is not None:
        _in_state(frame, listed(filters.status), add)
    if filters.workflow is not None:
        names = listed(filters.workflow)
        if frame.workflow:
            add(f"{frame.workflow} IN ({marks(names)})", *names)
        else:
            add(_OF_WORKFLOW.format(run=_needed(frame, "workflow", frame.run), marks=marks(names)), *names)
    if filters.node is not None:
        names = listed(filters.node)
        add(f"{_needed(frame, 'node', frame.node)} IN ({marks(names)})", *names)
    if filters.resource_manager is not None:
        names = listed(filters.resource_manager)
        add(f"{_needed(frame, 'resource_manager', frame.manager)} IN ({marks(names)})", *names)
    if filters.tag is not None:
        add(_TAGGED.format(run=_needed(frame, "tag", frame.run)), filters.tag)
    if filters.aggregate is not None:
        names = listed(filters.aggregate)
        add(f"{_needed(frame, 'aggregate', frame.aggregate)} IN ({marks(names)})", *names)
    if filters.text is not None:
        _needed(frame, "text", " ".join(frame.search))
        add("(" + " OR ".join(f"instr(lower({sql}), lower(?))" for sql in frame.search) + ")")
        parameters.extend([filters.text] * len(frame.search))
    for value, comparison in ((filters.since, ">="), (filters.until, "<=")):
        if value is not None:
            column = frame.column(frame.time)
            assert column is not None
            add(f"{column.sql} {comparison} ?", milliseconds(value))
    return predicates, parameters


def _of_runs(frame: Frame, ids: list[str], add: Any) -> None:
    if frame.run:
        add(f"{frame.run} IN ({marks(ids)})", *ids)
    else:
        aggregate = _needed(frame, "run", frame.aggregate)
        add(f"{aggregate} IN (SELECT resource_id FROM runs WHERE run_id IN ({marks(ids)}))", *ids)


def _in_state(frame: Frame, words: list[str], add: Any) -> None:
    column = frame.column(_needed(frame, "status", frame.status))
    assert column is not None
    for word in words:
        if word not in column.words:
            raise QueryError(
                f"{frame.name}(status={word!r}): no such state; there are {', '.join(map(repr, column.words))}"
            )
    add(f"{column.sql} IN ({marks(words)})", *map(column.stored, words))


def _needed(frame: Frame, filter_name: str, expression: str) -> str:
    if not expression:
        raise QueryError(f"{frame.name}() has no filter {filter_name}=")
    return expression


def _order(frame: Frame, order: Words | None) -> str:
    if order is None:
        return frame.order
    terms = []
    for term in listed(order):
        column = frame.column(term.removeprefix("-"))
        if column is None:
            names = ", ".join(column.name for column in frame.columns)
            raise QueryError(f"order={term!r}: {frame.name}() has no such column; there are {names}")
        expression = column.packed if column.kind == "state" else column.sql
        terms.append(f"{expression} DESC" if term.startswith("-") else f"{expression} ASC")
    return ", ".join([*terms, frame.order])


def marks(values: Sequence[Any]) -> str:
    """As many placeholders as values."""
    return ", ".join("?" * len(values))


def listed(value: Words) -> list[str]:
    """One word or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def run_ids(value: Any) -> list[str]:
    """The ids meant by an id, a `Run` (with all its continuations), or several of them."""
    if isinstance(value, str):
        return [value]
    chain = getattr(value, "chain", None)
    if chain is not None:
        return list(chain)
    return [run_id for item in value for run_id in run_ids(item)]


def project_of(value: str) -> str:
    """The id of a project given by its id or its folder."""
    return value if value.startswith("project-") else identities.project_id(value)


def milliseconds(value: Moment) -> int:
    """Milliseconds since the epoch of a moment: a datetime or date (UTC when it names no zone), ISO text, the
    milliseconds themselves, or a timedelta that counts back from now.
    """
    if isinstance(value, bool):
        raise QueryError(f"{value!r} is not a moment")
    if isinstance(value, int):
        return value
    try:
        moment = pd.Timestamp.now("UTC") - value if isinstance(value, dt.timedelta) else pd.Timestamp(value)
    except (ValueError, TypeError) as error:
        raise QueryError(f"{value!r} is not a moment; say it as 2026-01-31T12:00 or as a datetime") from error
    if pd.isna(moment):
        raise QueryError(f"{value!r} is not a moment")
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment
    return int((moment - _EPOCH) // pd.Timedelta(1, "ms"))
