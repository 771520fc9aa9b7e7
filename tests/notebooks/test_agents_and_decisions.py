"""The notebook about agents and decisions answers all it asks, in both of its runs."""

from __future__ import annotations

import pi_workflows_nb as pw
from tests.notebooks.books import cell_with, client_of, run_all, shown_by

NAME = "03_agents_and_decisions.ipynb"


def test_all_that_is_asked_is_answered_once_and_again_in_the_same_kernel(book, state_folder):
    client = client_of(book)
    with client.setup_kernel():
        run_all(client)
        done = client.nb
        assert "from 1 to 5, not 11" in shown_by(cell_with(done, '"urgency": 11'))
        assert "was refused" in shown_by(cell_with(done, "heard = []"))
        assert "an agent can never answer it" in shown_by(cell_with(done, "def eager"))
        assert "by a person" in shown_by(cell_with(done, "decision = server.inbox()"))
        run_all(client)
    with pw.open_state(state_folder / "state.sqlite") as file:
        assert file.verify().empty
        assert set(file.requests()["status"]) == {"settled"}
        assert sorted(file.decisions()["provenance"]) == ["human"] * 6 + ["timeout_policy"] * 2
        assert sorted(file.submissions()["outcome"]) == ["accepted"] * 6 + ["rejected"] * 4
