"""The sample: where a rule stands, what is left when it is gone, and the test that is there for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deleted:
    """A rule of `file`, whose lines `old` become `new`; `test` is its test, below `tests/`."""

    rule: str
    file: str
    old: str
    new: str
    test: str


CLAIMS = "state/transitions_claims.py"
CONTROL = "state/transitions_control.py"
SWEEP = "state/transitions_dependents.py"
CHAIN = "state/transitions_chain.py"

RULES = (
    Deleted("a paused run is not claimed", CLAIMS, "        and not run.paused\n", "",
            "state/test_life_table.py::test_only_what_is_due_and_free_is_claimed"),
    Deleted("what somebody holds is left alone by a claim", CLAIMS,
            "        and not is_held(run, now)\n", "",
            "state/test_run_claims.py::test_a_claim_that_comes_too_early_leaves_the_effects_of_the_holder_alone"),
    Deleted("a stopped run is not claimed", CLAIMS, "        and run.error_code not in places.STOPPED\n", "",
            "state/test_life_table.py::test_only_what_is_due_and_free_is_claimed"),
    Deleted("a pending request keeps a run where it is", CLAIMS,
            "        and connection.execute(_PENDING_REQUEST, (run.run_id,)).fetchone() is None\n", "",
            "state/test_run_claims.py::test_a_run_that_waits_for_its_session_is_not_executed"),
    Deleted("effects are settled before a claim", CLAIMS,
            "    if run_effects.settle_uncertain(connection, run, now):\n        park_ambiguous(connection, run, now)\n"
            "        return None\n", "",
            "main_path/test_deaths.py::test_a_killed_runner_leaves_a_manual_effect_to_a_person"),
    Deleted("who slept has slept", CLAIMS, "    wake(connection, run, now)\n", "",
            "state/test_waits.py::test_the_next_claim_ends_the_sleep_as_a_step"),
    Deleted("nothing is validated of a paused run", CLAIMS,
            ' or run.queue_status != "parked" or run.paused:', ' or run.queue_status != "parked":',
            "state/test_run_claims.py::test_nothing_is_validated_of_a_run_that_is_paused_or_asks_nothing"),
    Deleted("a control of an expired run claims it", CONTROL,
            "    stale = claim_for_control(connection, run, now, free=claimed)\n", "    stale = None\n",
            "state/test_run_claims.py::test_a_control_of_an_expired_run_claims_it_first"),
    Deleted("a pause gives the claim back", CONTROL, "    mutation.clear_lease(connection, run.resource_id)\n", "",
            "state/test_run_life.py::test_pause_keeps_the_boundary_and_resume_goes_on"),
    Deleted("a pause withdraws step messages", CONTROL,
            '    cancel_messages(connection, run, ("step",), now)\n', "",
            "state/test_dependents.py::test_a_pause_withdraws_the_step_alone"),
    Deleted("a sleep goes on after a resume", CONTROL,
            "        due_at = asleep.due_at\n", "        pass\n",
            "state/test_waits.py::test_a_pause_keeps_the_sleep_and_a_resume_goes_on_with_it"),
    Deleted("an end closes attempts", SWEEP, "    cancel_attempts(connection, run, error, now)\n", "",
            "state/test_dependents.py::test_open_attempts_are_cancelled"),
    Deleted("an end resolves decisions", SWEEP, "    cancel_decisions(connection, run, reason, now, actor)\n", "",
            "state/test_dependents.py::test_decisions_are_resolved_as_cancelled"),
    Deleted("an end closes turns", SWEEP, "    end_turns(connection, run, now)\n", "",
            "state/test_dependents.py::test_an_open_turn_is_lost"),
    Deleted("a completed run keeps its follow-ups", SWEEP, '    if status != "completed":\n', "    if True:\n",
            "state/test_dependents.py::test_follow_ups_are_delivered_after_a_completed_run_alone"),
    Deleted("a late event is refused", CHAIN,
            "        if wait.due_at is not None and wait.due_at <= now:\n", "        if False:\n",
            "state/test_waits.py"),
    Deleted("three restarts in a chain", CHAIN, "    if _restarts(chain) >= MOST_RESTARTS:\n", "    if False:\n",
            "state/test_restart.py::test_three_restarts_are_the_most_in_a_chain"),
    Deleted("a cancelled run is not restarted", CHAIN, '    if run.status == "cancelled":\n', "    if False:\n",
            "state/test_restart.py::test_only_what_is_over_and_was_not_cancelled_is_restarted"),
    Deleted("no restart after two equal ends", CHAIN, "    if same is not None:\n", "    if False:\n",
            "state/test_restart.py::test_a_run_that_ended_as_one_before_it_is_not_restarted"),
    Deleted("the place of a session is for one run", "state/places.py",
            "    if holder(connection, session_id, run_id) is not None:\n        return False\n", "",
            "state/test_session_place.py"),
    Deleted("the place goes to the oldest", "state/places.py",
            "{_WANTS} ORDER BY q.created_at, r.rowid LIMIT 1", "{_WANTS} ORDER BY q.created_at DESC LIMIT 1",
            "state/test_session_place.py::test_the_place_goes_to_the_oldest_in_line_in_the_same_transaction"),
    Deleted("the end of the nursery counts for no run", "server/runner_exit.py",
            "cause.ours or progress.abandoned", "progress.abandoned",
            "server/test_runner_exit.py::test_the_end_of_the_nursery_or_the_server_counts_for_no_run"),
    Deleted("the third crash parks", "server/runner_exit.py", "errors >= CRASHES or ", "",
            "server/test_runner_exit.py::test_the_third_in_a_row_without_a_finished_node_waits_for_a_resume"),
    Deleted("a finished node starts the count anew", "state/steps.py",
            "            if cursor.progressed and cursor.errors:\n", "            if False:\n",
            "server/test_runner_exit.py::test_a_finished_node_starts_the_count_anew"),
    Deleted("recovery settles effects", "state/transitions_recovery.py",
            "        | settle_effects(connection, now)\n", "",
            "state/test_recovery_of_runs.py::test_effects_are_read_before_their_runs_are_judged"),
    Deleted("recovery lets validations go", "state/transitions_recovery.py",
            "        | let_go(connection, now)\n", "",
            "state/test_recovery_of_runs.py::test_a_validation_that_was_cut_off_lets_the_run_go"),
    Deleted("a message of another generation is refused", "server/proposals.py",
            "        or message.generation != launch.claim.generation\n", "",
            "server/test_runner_protocol.py::test_a_bad_frame_stops_its_runner_alone"),
    Deleted("an operation has its kinds", "server/proposals.py",
            "    if message.kind not in kinds:\n", "    if False:\n",
            "server/test_runner_protocol.py::test_a_bad_frame_stops_its_runner_alone"),
    Deleted("a frame is canonical", "wire/decoding.py",
            "    if again != data:\n        canonical_json.check(data)\n"
            '        raise ProtocolError("A frame leaves out what it must say.")\n    return found\n\n\ndef converted',
            "    return found\n\n\ndef converted",
            "wire/test_decoders_fuzzed.py::test_a_spoilt_frame_is_read_or_refused_with_one_error"),
)  # fmt: skip
