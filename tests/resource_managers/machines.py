"""What state machines over a store share: a file for each example, a clock that jumps, and how long they go on."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from pi_workflows_nb.resource_managers.store import SqliteResourceManagerStore
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.wire.errors import PiWorkflowsError
from tests.leaks import give_back
from tests.state.files import NOW

PROJECTS = ("one", "two")
projects = st.sampled_from((0, 0, 0, 1))
picks = st.sampled_from((0, 0, 0, 0, 1, 1, 2, 3, 5, 9))
slips = st.sampled_from((0, 0, 0, 1))

SHORT, LONG, PART = 25, 2_000, 250
"""Examples; a machine remembers much of those that it tried, and forgets them after a part."""

with_and_without_reopening = pytest.mark.parametrize("reopens", [False, True], ids=["open", "reopened"])


class StoreMachine(RuleBasedStateMachine):
    """Each project has a store of its own on a connection of its own; `claims` are pairs of real and expected."""

    path = None
    reopens = False

    def __init__(self):
        super().__init__()
        self.path.with_name("state").unlink(missing_ok=True)
        self.file = shutil.copy(self.path, self.path.with_name("state"))
        self.now = NOW
        self.claims = []
        self.stores = [self.open(project) for project in PROJECTS]

    def open(self, project):
        database = Database.open(self.file, self.now)
        database.connection.execute("PRAGMA synchronous = OFF")
        return SqliteResourceManagerStore(database, f"/{project}", clock=lambda: self.now)

    def same(self, real, wanted, seen=lambda result: result, expected=lambda result: result):
        """Both give the same, or fail for the same reason; gives what both gave."""
        try:
            should, failure = wanted(), None
        except PiWorkflowsError as error:
            should, failure = None, error
        try:
            did, raised = real(), None
        except PiWorkflowsError as error:
            did, raised = None, error
        assert type(raised) is type(failure), (raised, failure, did)
        if failure is not None:
            assert getattr(raised, "reason", None) == getattr(failure, "reason", None)
            return None, None
        assert seen(did) == expected(should)
        return did, should

    def claim(self, pick):
        """The claim made `pick` claims ago."""
        return self.claims[-1 - pick % len(self.claims)]

    @rule(jump=st.sampled_from((1, 1, 500, 2000, 6000, -1, 60_000, -3_600_000)))
    def clock_jumps(self, jump):
        self.now += jump

    @rule(project=projects)
    @precondition(lambda self: self.reopens)
    def reopen(self, project):
        self.stores[project]._database.close()
        self.stores[project] = self.open(PROJECTS[project])

    def teardown(self):
        try:
            for project, store in enumerate(self.stores):
                self.compare_rows(project, store)
        finally:
            for store in self.stores:
                store._database.close()


def try_machine(machine, folder, reopens, long_form):
    """Random examples, 25 or 2,000; the file of each begins as a copy of one that was made beside it."""
    template = folder / "template"
    Database.open(template, NOW).close()
    for _ in range(LONG // PART if long_form else 1):
        run_state_machine_as_test(
            type("Machine", (machine,), {"path": template, "reopens": reopens}),
            settings=settings(
                max_examples=PART if long_form else SHORT,
                derandomize=settings().derandomize and not long_form,  # or all parts would be the same
                stateful_step_count=50,
                deadline=timedelta(seconds=60),
                suppress_health_check=list(HealthCheck),
                database=None,
            ),
        )
        give_back()
