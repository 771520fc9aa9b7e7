"""A decision that only a person may take: asked once, taken once, whoever comes at the same moment."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import transitions, transitions_recovery
from pi_workflows_nb.state.run_state import run_state
from pi_workflows_nb.wire.errors import ConflictError, WorkflowInputError
from tests.state.files import NOW
from tests.state.lives import Life, move

SOON = NOW + 60_000
TEXT = {"maxLength": 5, "minLength": 1, "name": "why", "prompt": "say why", "type": "text"}
ASKED = {
    "audience": "owner",
    "choices": {"yes": {"label": "Yes"}, "no": {"input": TEXT, "label": "No"}},
    "default": {"choice": "yes"},
    "presentation": {"blocks": [], "summary": "ship it?"},
    "subject": {"n": 1},
    "title": "Ship",
}


class Deciding(Life):
    """A run that has asked a person."""

    def __init__(self, database, pause_ms=60_000, **more):
        super().__init__(database, "run-1", NOW, session="notebook-1")
        self.take()
        self.step(move(started=self.started("ship", "checkpoint")))
        with database.transaction() as c:
            self.decision = transitions.ask_person(
                c, self.row, self.claim, self.attempt, "ship", {**ASKED, **more}, pause_ms, NOW
            )
        self.gone("exited")

    def decides(self, response, now=NOW + 1, key="k"):
        with self.database.transaction() as c:
            return transitions.decide(c, self.decision, response, "me", "notebook", key, now)

    def resolution(self):
        return self.ask("SELECT outcome, provenance, actor_id FROM human_decision_resolutions")

    def output(self, heir):
        return bytes(run_state(self.database.connection, heir, NOW).steps[-1].output.inline)


@pytest.fixture
def life(database):
    deciding = Deciding(database)
    yield deciding
    deciding.sound()


def test_an_asked_run_waits_for_a_person_until_its_deadline(life):
    assert (life.stands, life.standing.waits_for, life.row.available_at) == (("waiting", "parked"), "decision", SOON)
    assert life.take() is None
    assert life.ask("SELECT kind, status FROM workflow_messages") == [("decision", "pending")]


def test_the_first_valid_answer_counts_and_one_continuation_goes_on(life):
    with pytest.raises(WorkflowInputError, match="needs the text 'why': say why"):
        life.decides("no")
    heir = life.decides({"choice": "no", "input": {"why": "early"}})
    with pytest.raises(ConflictError, match="taken already: 'no', by a person"):
        life.decides("yes", key="other")
    assert (life.stands, life.output(heir)) == (("waiting", "done"), b'{"choice":"no","input":{"why":"early"}}')
    assert life.resolution() == [("accepted", "human", "me")]
    assert life.ask("SELECT parent_run_id, continuation_run_id FROM continuations") == [("run-1", heir)]
    life.now = SOON
    assert life.take() is None


@pytest.mark.parametrize("by", ["claim", "recovery"])
def test_after_the_deadline_the_default_counts_and_no_answer_does(life, by):
    with pytest.raises(ConflictError, match="its time is over"):
        life.decides("no", SOON)
    life.now = SOON
    if by == "claim":
        assert life.take() is None
    else:
        with life.database.transaction() as c:
            assert transitions_recovery.recover(c, SOON) == {"run-1"}
    ((heir,),) = life.ask("SELECT continuation_run_id FROM continuations")
    assert (life.output(heir), life.resolution()) == (b'{"choice":"yes"}', [("accepted", "timeout_policy", None)])
    with pytest.raises(ConflictError, match="'yes', by its default, in time"):
        life.decides("no", SOON)


def test_a_paused_decision_is_not_taken_and_does_not_end(life):
    life.pause()
    with pytest.raises(ConflictError, match="paused"):
        life.decides("yes")
    life.now = SOON + 1
    assert life.take() is None
    assert life.resolution() == []
    life.resume()
    assert life.take() is None
    assert life.resolution() == [("accepted", "timeout_policy", None)]


def test_a_cancelled_run_cancels_its_decision(life):
    life.cancel()
    assert life.resolution() == [("cancelled", "explicit_cancel", None)]
    with pytest.raises(ConflictError, match="it was cancelled"):
        life.decides("yes")


def test_without_a_default_it_waits_for_ever(database):
    life = Deciding(database, None, default=None)
    life.now = NOW + 10**12
    assert life.take() is None
    assert life.stands == ("waiting", "parked")
    life.decides({"choice": "no", "input": "x"})
    life.sound()


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("maybe", "'maybe' is no choice; it is 'no' or 'yes'"),
        ({"choice": "yes", "input": "x"}, "'yes' takes no input"),
        ({"choice": "no", "input": "too long"}, "8 characters; it may have 1 to 5"),
        (["yes"], "the answer is 'no' or 'yes'"),
        ({"choice": "yes", "more": 1}, "the answer is"),
        ({"choice": []}, "is no choice"),
    ],
)
def test_what_is_no_answer_is_told_what_to_change(life, response, said):
    with pytest.raises(WorkflowInputError, match=said):
        life.decides(response)
