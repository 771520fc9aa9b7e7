"""From Python values to JSON: what is converted, what is refused and how the refusal helps."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import NotJsonError
from pi_workflows_nb.workflows.values import case_of, to_json


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024


@dataclasses.dataclass
class Order:
    n: int


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(7), 7),
        (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
        (np.datetime64("NaT"), None),
        (np.timedelta64(1500, "ms"), 1.5),
        (pd.Timestamp("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05+00:00"),
        (pd.NaT, None),
        (pd.NA, None),
        (pd.Timedelta("90s"), 90.0),
        (pd.Period("2026-01", "M"), "2026-01"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Point(1, (2, 3)), [1, [2, 3]]),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        ({np.str_("k"): [np.int8(1)]}, {"k": [1]}),
        (pd.Series([1, 2]).sum(), 3),
    ],
    ids=repr,
)
def test_converted(value, wanted):
    found = to_json(value)
    assert found == wanted
    assert canonical_json.decode(canonical_json.encode(found)) == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, {"b": math.nan}]}, r"\$\.a\[1\]\.b: nan is not JSON"),
        ({"a": np.float64("inf")}, r"\$\.a: inf is not JSON"),
        ([2**53], r"\$\[0\]: the integer 9007199254740992 is too large.*use a string"),
        (b"x", r"\$: a bytes is not JSON.*ctx\.save"),
        ({1: 2}, r"\$: the key 1 is an int.*str\(key\)"),
        ({"s": {1}}, r"\$\.s: a set is not JSON; return a list: sorted"),
        (dt.datetime(2026, 1, 1), r"a datetime.datetime is not JSON.*isoformat"),  # noqa: DTZ001
        (dt.timedelta(1), r"total_seconds"),
        (decimal.Decimal("1.5"), r"str\(value\)"),
        (Path("x"), r"str\(value\)"),
        (Order(1), r"an Order is not JSON; return dataclasses\.asdict|Order is not JSON; return dataclasses\.asdict"),
        (pd.DataFrame({"a": [1]}), r"pandas\.DataFrame.*to_dict\('records'\).*ctx\.save"),
        (pd.Series([1]), r"tolist\(\).*ctx\.save"),
        (np.arange(3), r"numpy\.ndarray is not JSON.*tolist"),
        (np.complex64(1), r"numpy\.complex64 is not JSON"),
        (pd.Interval(0, 1), r"pandas\.Interval is not JSON"),
        (object(), r"an object is not JSON; return numbers, text, lists and dicts"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused(value, said):
    with pytest.raises(NotJsonError, match=said):
        to_json(value)


def test_value_that_contains_itself():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotJsonError, match="contains itself"):
        to_json(loop)


def test_result_shares_nothing():
    inner = [1]
    value = {"a": inner}
    found = to_json(value)
    inner.append(2)
    assert found == {"a": [1]}


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_stays_what_it_is(value):
    assert to_json(value) == value


def test_case_texts():
    assert [case_of(value) for value in ("a", 1, 1.0, 0.5, True, None, Colour.RED, [], math.inf)] == [
        "a", "1", "1", "0.5", "true", "null", "red", None, None
    ]  # fmt: skip


def test_neither_numpy_nor_pandas_is_imported():
    program = "import sys, pi_workflows_nb.workflows.values as v; v.to_json({'a': 1}); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
