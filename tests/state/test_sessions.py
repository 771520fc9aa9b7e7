"""What a node asks its session: the request, its messages and turns, and the one answer that counts."""

from __future__ import annotations

import pytest

from pi_workflows_nb.state import interactive_requests, transitions, transitions_recovery, workflow_messages
from pi_workflows_nb.state.run_state import run_state
from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import ConflictError, StaleClaimError
from tests.state.files import NOW
from tests.state.lives import Life, move

SESSION = "notebook-1"
CONTRACT = canonical_json.encode({"choices": None, "expectedOutput": None, "nodeId": "ask", "prompt": "which?"})


class Asking(Life):
    """A run that has asked its session."""

    def __init__(self, database, run_id="run-1", now=NOW):
        super().__init__(database, run_id, now, session=SESSION)
        self.take()
        self.put()

    def put(self):
        self.step(move(started=self.started("ask", "agent")))
        with self.database.transaction() as c:
            self.request = transitions.ask_session(c, self.row, self.claim, self.attempt, "ask", CONTRACT, self.now)
        self.gone("exited")

    def begin_turn(self):
        with self.database.transaction() as c:
            message = workflow_messages.next_of(c, SESSION)
            return message and workflow_messages.take(c, message, SESSION, "entry", self.now)

    def ends_turn(self, turn, reason="completed"):
        with self.database.transaction() as c:
            return transitions.end_turn(c, turn, reason, self.now)

    def submits(self, value=b"1", key="k", turn=None):
        with self.database.transaction() as c:
            return transitions.submit(c, self.request, key, value, "host-a", self.now, turn)

    def accepts(self, submission, claim):
        with self.database.transaction() as c:
            return transitions.accept(c, submission, b'{"n":1}', claim, self.now)

    def rejects(self, submission, claim, why="not a number"):
        with self.database.transaction() as c:
            return transitions.reject(c, submission, why, claim, self.now)

    def messages(self):
        return self.ask("SELECT status FROM workflow_messages ORDER BY order_number")

    def shown(self):
        return [
            canonical_json.decode(content)["content"]
            for (content,) in self.ask(
                "SELECT b.content FROM workflow_messages m JOIN blobs b ON b.blob_hash = m.content_hash"
                " ORDER BY order_number"
            )
        ]

    def asked(self):
        return interactive_requests.read(self.database.connection, self.request)

    def outcomes(self):
        return [one for (one,) in self.ask("SELECT outcome FROM interactive_submissions ORDER BY rowid")]


@pytest.fixture
def life(database):
    asking = Asking(database)
    yield asking
    asking.sound()


def test_an_asked_run_waits_parked_with_one_message(life):
    assert (life.stands, life.standing.waits_for) == (("waiting", "parked"), "request")
    assert life.messages() == [("pending",)]
    assert life.take() is None


def test_an_accepted_answer_is_the_output_and_the_run_goes_on_by_itself(life):
    turn = life.begin_turn()
    submission, claim = life.submits(turn=turn)
    assert life.row.owner_id == "host-a"
    assert life.accepts(submission, claim)
    life.ends_turn(turn)
    assert (life.stands, life.asked().status, life.outcomes()) == (("running", "parked"), "settled", ["accepted"])
    state = run_state(life.database.connection, life.run_id, NOW)
    assert [bytes(step.output.inline) for step in state.steps] == [b'{"n":1}']
    assert state.pending is None
    assert life.take() is not None


def test_a_refused_answer_leaves_the_request_and_the_next_one_counts(life):
    life.rejects(*life.submits(key="a"))
    assert (life.stands, life.asked().status, life.row.owner_id) == (("waiting", "parked"), "pending", None)
    life.accepts(*life.submits(key="b"))
    assert life.outcomes() == ["rejected", "accepted"]


def test_one_answer_is_looked_at_at_a_time_and_none_after_it_was_accepted(life):
    submission, claim = life.submits()
    with pytest.raises(ConflictError, match="looked at just now"):
        life.submits(key="other")
    life.accepts(submission, claim)
    with pytest.raises(ConflictError, match="answered already"):
        life.submits(key="late")
    assert not life.accepts(submission, claim)


def test_turns_without_an_answer_are_reminded_twice_and_then_the_step_fails(life):
    for number in (1, 2):
        life.ends_turn(life.begin_turn(), "completed" if number == 1 else "error")
        assert life.asked().unproductive_turn_ends == number
    life.rejects(*life.submits())
    life.ends_turn(life.begin_turn(), "lost")
    assert (life.stands, life.asked().status) == (("running", "parked"), "cancelled")
    assert life.messages() == [("sent",)] * 3
    state = run_state(life.database.connection, life.run_id, NOW)
    assert [step.outcome for step in state.steps] == ["failed"]
    assert "3 turns without an answer" in state.steps[0].error


def test_a_reminder_says_why_the_last_answer_was_refused(life):
    turn = life.begin_turn()
    life.rejects(*life.submits(turn=turn))
    life.ends_turn(turn)
    assert life.shown() == ["which?", "which?\n\nThe last answer was refused: not a number"]


def test_the_end_of_a_turn_is_told_once(life):
    turn = life.begin_turn()
    life.ends_turn(turn)
    life.ends_turn(turn)
    assert life.asked().unproductive_turn_ends == 1
    with pytest.raises(ConflictError, match="ended already"):
        life.ends_turn(turn, "error")


def test_a_late_end_of_a_turn_that_the_end_of_the_run_closed_is_adopted(life):
    turn = life.begin_turn()
    life.cancel()
    assert life.ask("SELECT stop_reason FROM workflow_turns") == [("lost",)]
    assert life.ends_turn(turn, "completed") == life.run_id


def test_an_aborted_turn_pauses_and_the_resume_shows_the_request_again(life):
    life.ends_turn(life.begin_turn(), "aborted")
    assert (life.row.paused, life.asked().unproductive_turn_ends) == (True, 0)
    assert life.begin_turn() is None
    with pytest.raises(ConflictError, match="paused"):
        life.submits()
    life.resume()
    assert life.messages() == [("sent",), ("pending",)]


def test_a_pause_takes_the_message_back_and_refuses_what_is_looked_at(life):
    submission, claim = life.submits()
    life.pause()
    assert (life.messages(), life.outcomes()) == ([("cancelled",)], ["rejected"])
    assert not life.accepts(submission, claim)
    life.resume()
    life.pause()
    life.resume()
    assert life.messages() == [("cancelled",), ("cancelled",), ("pending",)]
    life.accepts(*life.submits(key="again"))
    assert life.messages()[-1] == ("cancelled",)


def test_a_turn_that_goes_on_through_a_pause_is_not_doubled(life):
    turn = life.begin_turn()
    life.pause()
    life.resume()
    assert life.begin_turn() is None
    life.accepts(*life.submits(turn=turn))


def test_whoever_speaks_for_the_session_next_loses_the_turns_it_does_not_know(life):
    turn = life.begin_turn()
    with life.database.transaction() as c:
        assert transitions.lose_turns(c, SESSION, {turn}, NOW) == set()
        assert transitions.lose_turns(c, SESSION, set(), NOW) == {life.run_id}
    with pytest.raises(StaleClaimError, match="is over"):
        life.submits(turn=turn)
    assert life.messages() == [("sent",), ("pending",)]


def test_a_submission_outlives_its_server_and_is_looked_at_anew(life):
    submission, before = life.submits()
    with life.database.transaction() as c:
        transitions_recovery.recover(c, NOW + 1)
        claim = transitions.hold_for(c, life.asked(), "host-b", NOW + 1)
    with pytest.raises(StaleClaimError):
        life.accepts(submission, before)
    life.now += 1
    assert life.accepts(submission, claim)


def test_the_end_of_the_run_leaves_nothing_open(life):
    life.begin_turn()
    submission, claim = life.submits()
    life.cancel()
    assert (life.outcomes(), life.asked().status) == (["rejected"], "cancelled")
    assert not life.accepts(submission, claim)


def test_messages_of_a_session_are_shown_in_order_and_a_step_waits_while_its_answer_is_looked_at(database):
    first = Asking(database)
    second = Asking(database, "run-2", NOW + 1)
    submission, claim = first.submits()
    with database.transaction() as c:
        assert workflow_messages.next_of(c, SESSION).run_id == "run-2"
    first.rejects(submission, claim)
    with database.transaction() as c:
        assert workflow_messages.next_of(c, SESSION).run_id == "run-1"
    second.sound()
