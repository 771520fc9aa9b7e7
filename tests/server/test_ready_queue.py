"""Which run is next: by due time, then by age, whatever the wall clock does."""

from __future__ import annotations

import sqlite3

import pytest

from pi_workflows_nb.server.ready_queue import ReadyQueue
from pi_workflows_nb.state.database import schema_text


class MovedClock:
    """Both clocks, moved by hand."""

    def __init__(self):
        self.wall, self.steady = 1_800_000_000_000, 100.0

    def now(self):
        return self.wall

    def monotonic(self):
        return self.steady

    def passes(self, seconds):
        self.wall += int(seconds * 1000)
        self.steady += seconds


@pytest.fixture
def clock():
    return MovedClock()


@pytest.fixture
def rows():
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema_text())
    yield connection
    connection.close()


def add(rows, run_id, available_at, created_at=0, *, status="queued", queue="queued", paused=0, code=None):
    finished = None if status in ("queued", "running") else 0
    rows.execute(
        "INSERT INTO runs(run_id, resource_id, root_run_id, definition_digest, workflow_ref, launch_options_hash,"
        " status, paused, input_hash, created_at, updated_at, finished_at) VALUES (?1, ?1, ?1, x'', '', x'', ?2, ?3,"
        " x'', 0, 0, ?4)",
        (run_id, status, paused, finished),
    )
    rows.execute(
        "INSERT INTO run_queue(run_id, status, available_at, origin_session_id, error_code, created_at, updated_at)"
        " VALUES (?1, ?2, ?3, ?1, ?4, ?5, 0)",
        (run_id, queue, available_at, code, created_at),
    )


def test_by_due_time_then_by_age(rows, clock):
    add(rows, "late", clock.wall + 500)
    add(rows, "younger", clock.wall - 10, 2)
    add(rows, "older", clock.wall - 10, 1)
    add(rows, "oldest", clock.wall - 20, 9)
    queue = ReadyQueue(clock)
    queue.load(rows)
    assert [queue.pop(set()) for _ in range(4)] == ["oldest", "older", "younger", None]
    assert queue.next_due() == pytest.approx(0.5)
    clock.passes(0.5)
    assert queue.pop(set()) == "late"
    assert queue.next_due() is None


def test_what_waits_is_not_there(rows, clock):
    add(rows, "paused", clock.wall, paused=1)
    add(rows, "stopped", clock.wall, status="running", queue="parked", code="runnerNoProgress")
    add(rows, "asks", clock.wall, status="waiting", queue="parked")
    add(rows, "in line", clock.wall, queue="parked")
    add(rows, "over", clock.wall, status="completed", queue="done")
    queue = ReadyQueue(clock)
    queue.load(rows)
    assert queue.pop(set()) is None
    rows.execute("UPDATE runs SET paused = 0")
    queue.refresh(rows, "paused")
    assert queue.pop(set()) == "paused"


def test_a_run_whose_runner_still_lives_is_passed_over_and_kept(rows, clock):
    add(rows, "a", clock.wall, 1)
    add(rows, "b", clock.wall, 2)
    queue = ReadyQueue(clock)
    queue.load(rows)
    assert queue.pop({"a"}) == "b"
    assert queue.pop({"a"}) is None
    assert queue.pop(set()) == "a"


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_jumps_by_an_hour_moves_no_due_time(rows, clock, jump):
    add(rows, "now", clock.wall)
    add(rows, "soon", clock.wall + 1000)
    queue = ReadyQueue(clock)
    queue.load(rows)
    clock.wall += jump
    assert queue.pop(set()) == "now"
    assert queue.pop(set()) is None
    clock.passes(1.0)
    assert queue.pop(set()) == "soon"


def test_once_the_file_has_followed_the_clock_due_times_are_read_again(rows, clock):
    add(rows, "a while", clock.wall + 60_000)
    add(rows, "a moment", clock.wall + 3_600_000)
    queue = ReadyQueue(clock)
    queue.load(rows)
    clock.wall += 3_600_000
    rows.execute("UPDATE run_queue SET available_at = available_at + 3600000 WHERE run_id = 'a while'")
    queue.load(rows)
    assert (queue.pop(set()), queue.pop(set()), len(queue)) == ("a moment", None, 1)
