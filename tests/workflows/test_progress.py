"""Progress of version 1 is checked where it is published."""

from __future__ import annotations

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import UpdateError
from pi_workflows_nb.workflows.progress import moment
from pi_workflows_nb.workflows.updates import checked_update


def said(**fields):
    return {"schema": pw.PROGRESS, "status": "running", **fields}


@pytest.mark.parametrize(
    "data",
    [
        said(),
        *(said(status=word) for word in ("pending", "waiting", "blocked", "completed", "failed", "cancelled")),
        said(status="unknown", label="x" * 200, phase="y" * 128, unit="z" * 32),
        said(completed=0, total=0, unit="rows"),
        said(completed=1.5, unit="GB"),
        said(sourceUpdatedAt="2026-01-31T12:00:00Z", sourceEstimatedFinishAt="2026-01-31T12:00:00.25+05:30"),
    ],
)
def test_what_it_may_say(data):
    assert checked_update("progress", "overall", data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (said(status="busy"), "status is one of pending, running"),
        ({"schema": pw.PROGRESS}, "status is one of"),
        (said(percent=5), "no field 'percent'; the fields are schema, status, label"),
        (said(label="x" * 201), "label is a text of at most 200"),
        (said(label=5), "label is a text"),
        (said(phase="x" * 129), "phase is a text of at most 128"),
        (said(completed=1, unit="x" * 33), "unit is a text of at most 32"),
        (said(completed=1), "completed needs a unit"),
        (said(total=1), "total needs a unit"),
        (said(total=1, unit=""), "total needs a unit"),
        (said(completed=-1, unit="rows"), "completed is a number from 0 up, not -1"),
        (said(completed=True, unit="rows"), "completed is a number from 0 up, not True"),
        (said(completed="5", unit="rows"), "completed is a number from 0 up, not '5'"),
        (said(total=None, unit="rows"), "total is a number from 0 up, not None; leave it out"),
        (said(sourceUpdatedAt="2026-01-31T12:00:00"), "sourceUpdatedAt is a time with its offset"),
        (said(sourceEstimatedFinishAt="2026-02-31T12:00:00Z"), "sourceEstimatedFinishAt is a time"),
        (said(sourceEstimatedFinishAt=1.0), "sourceEstimatedFinishAt is a time"),
        (said(sourceUpdatedAt="\u0662026-01-31T12:00:00Z"), "sourceUpdatedAt is a time"),
    ],
)
def test_what_it_may_not_say(data, words):
    with pytest.raises(UpdateError) as caught:
        checked_update("progress", "overall", data)
    assert words in str(caught.value)


def test_other_data_may_say_what_it_likes():
    assert checked_update("progress", "overall", {"percent": 5, "schema": "mine"})


def test_numbers_of_numpy_count():
    numpy = pytest.importorskip("numpy")
    assert b'"completed":3' in checked_update("p", "k", said(completed=numpy.int64(3), unit="rows"))


def test_moments_are_read_with_their_offset():
    assert moment("1970-01-01T01:00:00.5+01:00") == 500
    assert moment("1970-01-01t00:00:01z") == 1000
    assert moment("0001-01-01T00:00:00+23:59") is None or moment("0001-01-01T00:00:00+23:59") < 0
