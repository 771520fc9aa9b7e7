"""Frames have the same columns and real dtypes, whether anything was found or not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pi_workflows_nb.notebook.frame_definitions import FRAMES
from pi_workflows_nb.notebook.open_state import open_state

NAMES = sorted(FRAMES)


def dtype_of(column):
    return {
        "text": pd.StringDtype("python", na_value=pd.NA),
        "digest": pd.StringDtype("python", na_value=pd.NA),
        "count": pd.Int64Dtype(),
        "flag": pd.BooleanDtype(),
        "time": pd.DatetimeTZDtype("ms", "UTC"),
        "duration": np.dtype("m8[ms]"),
        "state": pd.CategoricalDtype(list(column.words), ordered=True),
    }[column.kind]


def read(path, name, **filters):
    return getattr(open_state(path), name)(**filters)


@pytest.mark.parametrize("name", NAMES)
def test_columns_and_dtypes_are_those_of_the_definition(name, everything):
    frame = read(everything, name).reset_index()
    definition = FRAMES[name]
    assert list(frame.columns) == list(dict.fromkeys([*definition.index, *(c.name for c in definition.columns)]))
    for column in definition.columns:
        assert frame[column.name].dtype == dtype_of(column), column.name


@pytest.mark.parametrize("name", NAMES)
def test_an_emptyframe_has_the_same_columns_and_dtypes(name, everything, empty):
    full, nothing = read(everything, name), read(empty, name)
    assert len(full) > 0
    assert len(nothing) == 0
    assert list(full.columns) == list(nothing.columns)
    assert list(full.index.names) == list(nothing.index.names) == list(FRAMES[name].index)
    assert (full.dtypes == nothing.dtypes).all()
    if full.index.nlevels == 1:
        assert full.index.dtype == nothing.index.dtype


@pytest.mark.parametrize("name", [name for name in NAMES if FRAMES[name].payloads])
def test_payload_columns_come_on_request(name, everything, empty):
    extra = [payload.column.name for payload in FRAMES[name].payloads]
    full = read(everything, name, payloads=True)
    assert not set(extra) & set(read(everything, name).columns)
    assert list(full.columns)[-len(extra) :] == extra
    nothing = read(empty, name, payloads=True)
    assert (full.dtypes == nothing.dtypes).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_source_of_a_frame_is_told(name, everything):
    frame = read(everything, name)
    assert FRAMES[name].about in frame.attrs["source"]
    assert "SELECT" in frame.attrs["source"]


def test_missing_is_na_everywhere(filled):
    runs = read(filled, "runs")
    waiting = runs.loc["run-waits"]
    assert waiting["finished_at"] is pd.NaT
    assert waiting["duration"] is pd.NaT
    assert waiting["title"] is pd.NA
    assert runs["lineage"].isna().sum() == len(runs) - 1
    events = read(filled, "events")
    assert events["lease_generation"].isna().all()
    assert events["actor_id"].isna().all()


def test_states_are_ordered_with_all_their_words(filled):
    status = read(filled, "attempts")["status"]
    assert list(status.cat.categories) == [
        "pending",
        "running",
        "waiting",
        "interrupted",
        "completed",
        "failed",
        "timed_out",
        "cancelled",
    ]
    assert (status > "waiting").all()


def test_older_words_of_the_file_do_not_appear(filled):
    for name in NAMES:
        frame = read(filled, name).reset_index()
        for column in frame.columns:
            assert not {"host", "worker", "controller"} & set(column.split("_")), (name, column)
            if isinstance(frame[column].dtype, pd.CategoricalDtype):
                assert not {"host", "controller"} & set(frame[column].cat.categories)
    assert "server" in set(read(filled, "events")["actor_type"].dropna())


def test_times_and_durations_are_exact(filled):
    run = read(filled, "runs").loc["run-done"]
    assert run["created_at"] == pd.Timestamp("2026-01-01T00:00:00Z")
    assert run["finished_at"] - run["created_at"] == run["duration"] == pd.Timedelta("4s")
    fix = read(filled, "attempts").loc["run-done-fix-1"]
    assert fix["duration"] == pd.Timedelta("250ms")
