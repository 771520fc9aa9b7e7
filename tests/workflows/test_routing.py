"""Which edge is taken after which end of a node."""

from __future__ import annotations

import pytest

from pi_workflows_nb.wire.errors import RoutingError
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.routing import next_node


def workflow(**edge) -> Workflow:
    wf = Workflow("w", start_at="a")
    wf.decision(name="a", choices=["x"], field="pick")(lambda ctx: "")
    if edge:
        wf.edge("a", **edge)
    return wf


OK = {"outcome": "ok", "error": None}
FAILED = {"outcome": "failed", "error": "ValueError: boom"}


@pytest.mark.parametrize("value", [None, 1, "x", {"b": "c"}])
def test_plain_edge(value):
    assert next_node(workflow(target="b"), "a", OK, value) == "b"
    assert next_node(workflow(target="b"), "a", FAILED, None) is None
    assert next_node(workflow(), "a", OK, value) is None


@pytest.mark.parametrize(
    ("path", "output"),
    [("$.r", {"r": "go"}), ("$output.r", {"r": "go"}), ("$.deep.er", {"deep": {"er": "go"}})],
)
def test_switch_on_the_output(path, output):
    wf = workflow(switch=path, cases={"go": "b"})
    assert next_node(wf, "a", OK, output) == "b"
    assert next_node(wf, "a", FAILED, None) is None


@pytest.mark.parametrize(
    ("value", "target"),
    [(True, "t"), (False, "f"), (None, "n"), (3, "three"), (3.0, "three"), (2.5, "half"), ("", "e")],
)
def test_values_that_are_not_text(value, target):
    cases = {True: "t", False: "f", None: "n", 3: "three", 2.5: "half", "": "e"}
    assert next_node(workflow(switch="$.r", cases=cases), "a", OK, {"r": value}) == target


def test_switch_on_the_result_catches_failures():
    wf = workflow(switch="$result.outcome", cases={"ok": "b", "failed": "mend", "timed_out": "mend"})
    assert next_node(wf, "a", OK, 1) == "b"
    assert next_node(wf, "a", FAILED, None) == "mend"
    assert next_node(wf, "a", {"outcome": "timed_out"}, None) == "mend"


def test_decision_edge_reads_the_field_of_its_node():
    wf = workflow()
    wf.decision_edge("a", {"x": "b"})
    assert next_node(wf, "a", OK, {"pick": "x"}) == "b"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"r": "q"}, r"node 'a': its edge reads \$\.r, but the value is 'q'; the cases are 'x', 'true'"),
        ({"r": ["x"]}, r"the value is \['x'\]"),
        ({"r": float("nan")}, r"the value is nan"),
        ({}, r"nothing is there; the cases are"),
        ("x", r"nothing is there"),
    ],
)
def test_value_without_a_case(output, said):
    with pytest.raises(RoutingError, match=said):
        next_node(workflow(switch="$.r", cases={"x": "b", True: "b"}), "a", OK, output)


def test_failure_without_a_case_keeps_the_failure_in_sight():
    with pytest.raises(RoutingError, match=r"the value is 'failed'.*ended with: 'ValueError: boom'"):
        next_node(workflow(switch="$result.outcome", cases={"ok": "b"}), "a", FAILED, None)
