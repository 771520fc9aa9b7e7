"""Inputs, answers and titles: what a workflow's own checks make of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from typing import TypedDict

import msgspec
import pytest

from pi_workflows_nb.wire.errors import WorkflowDefinitionError, WorkflowInputError
from pi_workflows_nb.workflows import inputs
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.inputs import accept_value, make_title, normalize_input


@dataclasses.dataclass
class Line:
    text: str
    count: int = 1


@dataclasses.dataclass
class Order:
    lines: list[Line]
    day: dt.date | None = None


class Shape(TypedDict):
    n: int


class Struct(msgspec.Struct):
    n: int = 5


class Model:
    """Has the two methods of a pydantic model that matter."""

    def __init__(self, n):
        self.n = n

    @classmethod
    def model_validate(cls, value):
        return cls(int(value["n"]))

    def model_dump(self, mode):
        assert mode == "json"
        return {"n": self.n}


def workflow(**fields) -> Workflow:
    return Workflow("w", start_at="a", **fields)


@pytest.mark.parametrize(
    ("shape", "given", "wanted"),
    [
        (None, {"a": (1, 2)}, {"a": [1, 2]}),
        (None, None, None),
        (Order, {"lines": [{"text": "x"}]}, {"lines": [{"text": "x", "count": 1}], "day": None}),
        (
            Order,
            Order([Line("x", 2)], dt.date(2026, 1, 2)),
            {"lines": [{"text": "x", "count": 2}], "day": "2026-01-02"},
        ),
        (Shape, {"n": 1}, {"n": 1}),
        (Struct, {}, {"n": 5}),
        (Model, {"n": "7"}, {"n": 7}),
        (Model, Model(8), {"n": 8}),
        (list[int], [1, 2], [1, 2]),
        (int, 3, 3),
        (lambda value: {"n": value["n"] + 1}, {"n": 1}, {"n": 2}),
        (lambda value: Line(value["t"]), {"t": "x"}, {"text": "x", "count": 1}),
        (lambda value: None, {"n": 1}, {"n": 1}),
    ],
)
def test_normalized(shape, given, wanted):
    assert normalize_input(workflow(input=shape), given) == wanted


def refuse(value):
    raise ValueError("too small")


def stumble(value):
    return value["missing"]


@pytest.mark.parametrize(
    ("shape", "given", "said"),
    [
        (Order, {"lines": [{}]}, r"the input of workflow 'w' is refused: .*`text`.*\$\.lines\[0\]"),
        (Shape, {"n": "x"}, r"Expected `int`, got `str`.*\$\.n"),
        (int, "3", r"Expected `int`"),
        (refuse, 1, r"is refused: too small"),
        (stumble, {}, r"is refused: KeyError: 'missing'"),
        (None, {"a": object()}, r"is not JSON, at \$\.a: an object is not JSON.*server\.save"),
        (lambda value: {1}, 1, r"is not JSON, at \$: a set"),
    ],
)
def test_refused(shape, given, said):
    with pytest.raises(WorkflowInputError, match=said):
        normalize_input(workflow(input=shape), given)


def test_answers_name_their_node():
    wf = workflow()
    wf.checkpoint("gate", validate=lambda value: value["ok"] or refuse(value))
    assert accept_value(wf.nodes["gate"], {"ok": 3}) == 3
    with pytest.raises(WorkflowInputError, match=r"node 'gate': the value is refused: too small"):
        accept_value(wf.nodes["gate"], {"ok": 0})


def test_choices():
    wf = workflow()
    wf.decision(name="d", choices=["x", "y"], field="pick")(lambda ctx: "")
    assert accept_value(wf.nodes["d"], "x") == {"pick": "x"}
    assert accept_value(wf.nodes["d"], {"pick": "y", "why": "z"}) == {"pick": "y"}
    for wrong in ("z", {"route": "x"}, None, {"pick": ["x"]}):
        with pytest.raises(WorkflowInputError, match=r"node 'd': .*'x', 'y'"):
            accept_value(wf.nodes["d"], wrong)


@pytest.mark.parametrize(
    ("title", "wanted"),
    [(None, None), ("fixed", "fixed"), (lambda value, name: f"{name} {value['n']}", "w 4"), (lambda v, n: None, None)],
)
def test_title(title, wanted):
    assert make_title(workflow(title=title), {"n": 4}) == wanted


def test_title_of_an_async_function():
    async def title(value, name):
        return name.upper()

    assert make_title(workflow(title=title), {}) == "W"


def test_titles_that_fail(monkeypatch):
    with pytest.raises(WorkflowDefinitionError, match=r"workflow 'w': title gave 3 \(int\)"):
        make_title(workflow(title=lambda value, name: 3), {})
    with pytest.raises(WorkflowDefinitionError, match=r"title\(input, name\), failed with KeyError: 'n'"):
        make_title(workflow(title=lambda value, name: value["n"]), {})
    monkeypatch.setattr(inputs, "TITLE_SECONDS", 0.05)
    with pytest.raises(WorkflowDefinitionError, match=r"took longer than 0\.05 s"):
        make_title(workflow(title=lambda value, name: time.sleep(0.3)), {})
    time.sleep(0.3)
