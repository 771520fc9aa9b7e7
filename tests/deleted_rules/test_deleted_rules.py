"""A few rules are taken out; the command tries all."""

from __future__ import annotations

import pytest

from tests.deleted_rules.rules import RULES
from tests.deleted_rules.trying import ROOT, attempt, copy

FEW = [deleted for deleted in RULES if deleted.rule in ("an end closes turns", "three restarts in a chain")]


def test_every_rule_of_the_sample_stands_where_it_is_said_to():
    for deleted in RULES:
        assert (ROOT / "pi_workflows_nb" / deleted.file).read_text().count(deleted.old) == 1, deleted.rule


@pytest.mark.parametrize("deleted", FEW, ids=lambda deleted: deleted.rule)
def test_a_rule_that_is_gone_is_noticed(deleted, tmp_path):
    tried = attempt(deleted, copy(tmp_path))
    assert tried.red, tried.said
