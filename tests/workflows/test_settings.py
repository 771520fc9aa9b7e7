"""Patches of settings: RFC 6902 and 6901 as other people test them, limits, and who may change what."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import pi_workflows_nb as pw
from pi_workflows_nb.wire.errors import SettingsError, WorkflowDefinitionError
from pi_workflows_nb.workflows.settings import check_patch, check_pointer, patched, rights_of

VECTORS = Path(__file__).parents[1] / "vectors"
LISTED = json.loads((VECTORS / "json-patch.json").read_text())
CASES = [case for case in LISTED if not case.get("disabled")]
POINTERS = json.loads((VECTORS / "json-pointer.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[f"{number}" for number in range(len(CASES))])
def test_the_cases_of_rfc_6902(case):
    before = copy.deepcopy(case["doc"])
    if "error" in case:
        with pytest.raises(SettingsError):
            patched(case["doc"], check_patch(case["patch"]))
    else:
        assert json.dumps(patched(case["doc"], check_patch(case["patch"])), sort_keys=True) == json.dumps(
            case.get("expected", case["doc"]), sort_keys=True
        )
    assert case["doc"] == before


def test_all_of_them_are_run_but_those_that_their_authors_disabled():
    assert (len(LISTED), len(CASES)) == (80, 77)


@pytest.mark.parametrize(("pointer", "found"), POINTERS["cases"])
def test_the_cases_of_rfc_6901(pointer, found):
    assert check_pointer(pointer).resolve(POINTERS["doc"]) == found
    assert patched(POINTERS["doc"], [{"op": "test", "path": pointer, "value": found}]) == POINTERS["doc"]


@pytest.mark.parametrize("pointer", POINTERS["malformed"])
def test_pointers_that_lead_nowhere(pointer):
    with pytest.raises(SettingsError):
        patched(POINTERS["doc"], check_patch([{"op": "test", "path": pointer, "value": 1}]))


def operation(op="replace", path="/a", **more):
    return {"op": op, "path": path, **({"value": 1} if op in ("add", "replace", "test") else {}), **more}


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({}, "a list of operations"),
        ([operation()] * 257, "has 257 operations; it may have 256"),
        ([operation(value="x" * (64 << 10))], "it may take 65,536"),
        ([operation(path="/" + "x" * 1024)], "longer than 1,024 bytes"),
        ([7], "operation 0 is 7"),
        ([operation(op="spam")], "op is 'spam'"),
        ([{"op": "add", "path": "/a"}], "(add) lacks value"),
        ([{"op": "move", "path": "/a"}], "(move) lacks from"),
        ([operation(), operation(path="a")], "operation 1 (replace): path 'a' is no JSON Pointer"),
        ([operation(path=7)], "path 7 is not a text"),
    ],
)
def test_patches_that_are_none(patch, said):
    with pytest.raises(SettingsError) as caught:
        check_patch(patch)
    assert said in str(caught.value)


def test_the_largest_patches_pass():
    assert len(check_patch([operation()] * 256)) == 256
    check_patch([operation(path="/" + "x" * 1023)])


RULES = [
    rule.told()
    for rule in (
        pw.allow_settings_path("", read=["human", "controller"], replace=["human"]),
        pw.allow_settings_path("/limits", read=["human"], add=["human"], replace=["human", "policy"], remove=["human"]),
        pw.allow_settings_path("/limits/hard", read=["human"]),
        pw.allow_settings_path("/notes", read=["session"], add=["session"], remove=["session"], replace=["session"]),
    )
]
VALUE = {"limits": {"soft": 1, "hard": 9}, "notes": ["a"], "mode": "x"}


def change(actor, *patch):
    return patched(VALUE, check_patch(list(patch)), rights_of(RULES, actor))


@pytest.mark.parametrize(
    ("actor", "patch"),
    [
        ("human", operation(path="/mode")),
        ("human", operation("add", "/mode")),
        ("human", operation("add", "/limits/new")),
        ("policy", operation(path="/limits/soft")),
        ("session", operation("add", "/notes/-")),
        ("session", operation("add", "/notes/0")),
        ("session", {"op": "move", "from": "/notes/0", "path": "/notes/0"}),
        ("human", {"op": "copy", "from": "/limits/hard", "path": "/limits/soft"}),
    ],
)
def test_what_is_open(actor, patch):
    assert change(actor, patch) is not None


@pytest.mark.parametrize(
    ("actor", "patch", "said"),
    [
        ("controller", operation(path="/mode"), "controller may not replace '/mode', by the rule for ''"),
        ("human", operation("add", "/other"), "human may not add '/other'"),
        ("human", operation(path="/limits/hard"), "human may not replace '/limits/hard'"),
        ("human", operation(path="/limits"), "may not replace '/limits', by the rule for '/limits/hard'"),
        ("human", operation("remove", "/limits"), "by the rule for '/limits/hard'"),
        ("human", operation(path=""), "human may not replace '', by the rule for"),
        ("policy", operation("add", "/limits/new"), "policy may not add"),
        ("session", operation("test", "/mode"), "session may not read '/mode'"),
        ("human", {"op": "copy", "from": "/notes/0", "path": "/mode"}, "human may not read '/notes/0'"),
        ("human", {"op": "move", "from": "/limits/hard", "path": "/limits/soft"}, "human may not remove"),
        ("session", {"op": "move", "from": "/notes/0", "path": "/mode"}, "session may not replace '/mode'"),
    ],
)
def test_what_is_closed(actor, patch, said):
    with pytest.raises(SettingsError) as caught:
        change(actor, patch)
    assert said in str(caught.value)


def test_without_rules_nothing_is_open():
    with pytest.raises(SettingsError, match="no rule of the workflow opens"):
        patched(VALUE, [operation(path="/mode")], rights_of([], "human"))


PLACES = ["", "/limits", "/limits/soft", "/limits/hard", "/notes", "/notes/0", "/mode"]


@given(some.lists(some.sampled_from(PLACES), max_size=4))
def test_what_nobody_may_write_never_changes(paths):
    value = VALUE
    for path in paths:
        for op in ("add", "remove", "replace"):
            try:
                value = patched(value, [operation(op, path)], rights_of(RULES, "human"))
            except SettingsError:
                pass
    assert value["limits"]["hard"] == 9
    assert value["notes"] == ["a"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: pw.allow_settings_path("x"), "is no JSON Pointer"),
        (lambda: pw.allow_settings_path("/x", add=["agent"]), "actors are session, human, controller, policy"),
        (lambda: pw.workflow_settings(initial={}, paths=["/x"]), "write pw.allow_settings_path"),
        (lambda: pw.workflow_settings(initial={}, parse=7), "parse=7 is not callable"),
        (
            lambda: pw.workflow_settings(initial={}, paths=[pw.allow_settings_path("/x")] * 2),
            "the same path stands twice",
        ),
    ],
)
def test_declarations_that_cannot_be_right(make, said):
    with pytest.raises(WorkflowDefinitionError) as caught:
        make()
    assert said in str(caught.value)
