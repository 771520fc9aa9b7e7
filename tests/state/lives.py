"""Runs that are driven as a server would drive them, one transition at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pi_workflows_nb.state import mutation, run_effects, runners, runs, transitions, verify, waits
from pi_workflows_nb.state.database import Database
from pi_workflows_nb.state.steps import Receipt, StepBatch
from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.runner_messages import End, Finished, ReserveEffect, Snapshot, Started, Value
from tests.state.files import NOW

DEFINITION = {
    "name": "w",
    "nodes": {
        "event": {"nodeType": "checkpoint", "waitEvent": {"name": "go"}},
        "nap": {"nodeType": "compute", "sleep": {"seconds": None}},
        "night": {"nodeType": "compute", "sleep": {"until": None}},
    },
}


class Life:
    """One run of a file; `session` makes it interactive. Each method is one transaction at `now`."""

    def __init__(
        self, database: Database, run_id: str = "run-1", now: int = NOW, session: str | None = None, made: bool = False
    ) -> None:
        self.database, self.run_id, self.now = database, run_id, now
        self.claim: mutation.Claim | None = None
        self.attempt = ""
        self.counts: Counter[str] = Counter()
        if made:
            return
        frozen = canonical_json.encode({"mac": "", "pickle": None, "python": "3.11", "text": "x"})
        with database.transaction() as c:
            new = runs.NewRun(
                run_id=run_id,
                workflow_name="w",
                project_id=runs.register_project(c, "/p", now),
                snapshot=canonical_json.encode(DEFINITION),
                input=b"{}",
                launch_options=runs.LaunchOptions(identities.sha256_hex(frozen)).encode(),
                source={"type": "file", "ref": "inline:w", "revision": "00"},
                frozen=frozen,
                session_id=session or f"headless:{run_id}",
                mode="interactive" if session else "headless",
            )
            runs.create(c, new, now)

    def take(self, lease_ms: int = transitions.RUN_LEASE_MS) -> mutation.Claim | None:
        with self.database.transaction() as c:
            self.claim = transitions.claim_for_execution(c, self.run_id, "host-a", self.now, lease_ms=lease_ms)
            if self.claim is not None:
                self.epoch = identities.new_id()
                runners.record_launch(c, self.epoch, self.run_id, self.claim, 1, b"{}", self.now)
                transitions.mark_running(c, self.run_id, self.claim, self.now)
                runners.record_ready(c, self.epoch, 4242, "linux:b:1:1", self.now)
        return self.claim

    def started(self, node: str = "n", node_type: str = "compute") -> Started:
        self.counts[node] += 1
        self.attempt = f"{self.run_id}-{node}-{self.counts[node]}"
        return Started(self.attempt, None, node, node_type, self.counts[node], False, self.now)

    def finished(self, outcome: Any = "ok", *, step: bool = True, effect: Any = None, error: Any = None) -> Finished:
        output = Value(inline=b"1") if outcome == "ok" else None  # type: ignore[arg-type]
        return Finished(self.attempt, effect, error, self.now, "n", outcome, output, step)

    def step(
        self,
        snapshot: Snapshot,
        expected: int | None = None,
        claim: mutation.Claim | None = None,
        receipt: Receipt | None = None,
    ) -> None:
        holder = claim or self.claim
        assert holder is not None
        with self.database.transaction() as c:
            batch = StepBatch(c, self.now)
            revision = self.revision(c) if expected is None else expected
            output = (identities.sha256(b"1"), b"1") if snapshot.finished and snapshot.finished.output else None
            batch.apply(self.run_id, holder, revision, snapshot, output, receipt)
            batch.flush()
            if snapshot.finished is not None and snapshot.finished.effect is not None:
                digest = output[0] if output else None
                run_effects.settle(c, self.run_id, snapshot.finished.effect, digest, snapshot.finished.error, self.now)
            if snapshot.end is not None:
                transitions.end(c, self.run_id, holder, snapshot.end, None, self.now)

    def run_one(self, node: str = "n", node_type: str = "compute") -> None:
        """Start and finish a node."""
        self.step(move(started=self.started(node, node_type)))
        self.step(move(finished=self.finished()))

    def ends(self, status: Any = "completed", error: str | None = None, **given: Any) -> None:
        """End, wait or sleep; then the runner is gone."""
        self.step(move(end=end(status, error=error, **given)))
        self.gone("exited")

    def asks(self) -> None:
        """Wait at a checkpoint."""
        self.step(move(started=self.started("ask", "checkpoint")))
        self.step(move(finished=self.finished(), end=end("waiting", detail="ask")))
        self.gone("exited")

    def sleeps(self, until: int, node: str = "nap") -> None:
        self.step(move(started=self.started(node), end=end("sleeping", due_at=until, detail=node)))
        self.gone("exited")

    def awaits(self, until: int | None) -> None:
        """Wait for the event `go`."""
        self.step(move(started=self.started("event", "checkpoint"), end=end("waiting", due_at=until, detail="event")))
        self.gone("exited")

    def acts(self, recovery: Any = "manual") -> str:
        """Start an action and reserve its effect, which is given."""
        self.step(move(started=self.started("act", "action")))
        assert self.claim is not None
        wish = ReserveEffect(self.attempt, "t.create", "k", recovery, Value())
        with self.database.transaction() as c:
            payload = run_effects.payload_of(recovery, b"{}")
            return run_effects.reserve(c, self.row, self.claim, wish, payload, self.now).effect_id

    def gone(self, outcome: Any = "crashed") -> None:
        with self.database.transaction() as c:
            runners.record_exit(c, self.epoch, outcome, 1, None, "", self.now)

    def does(self, transition: Any, *rest: Any) -> Any:
        """One of the transitions that take a run id and the time."""
        with self.database.transaction() as c:
            return transition(c, self.run_id, self.now, *rest)

    def pause(self) -> None:
        self.does(transitions.pause, "me")

    def resume(self) -> None:
        self.does(transitions.resume, "me")

    def cancel(self) -> None:
        self.does(transitions.cancel, "me", "enough")

    def answer(self, continuation: str = "run-2", value: bytes = b'"yes"') -> Life:
        with self.database.transaction() as c:
            transitions.answer(c, self.run_id, continuation, value, self.now)
        return Life(self.database, continuation, self.now, made=True)

    def restart(self) -> Life:
        with self.database.transaction() as c:
            run_id = transitions.restart(c, self.run_id, self.now)
        return Life(self.database, run_id, self.now, made=True)

    def revision(self, c: Any) -> int:
        return runs.read(c, self.run_id).revision

    @property
    def row(self) -> runs.RunRow:
        return runs.read(self.database.connection, self.run_id)

    @property
    def stands(self) -> tuple[str, str]:
        """Status of the run and of its queue row."""
        return self.row.status, self.row.queue_status

    @property
    def standing(self) -> Any:
        return waits.standing(self.database.connection, self.row)

    def ask(self, query: str, *parameters: Any) -> Any:
        return self.database.connection.execute(query, parameters).fetchall()

    def events(self) -> list[str]:
        return [
            kind
            for (kind,) in self.ask("SELECT event_type FROM events WHERE resource_id = ? ORDER BY event_seq",
                                    self.row.resource_id)
        ]  # fmt: skip

    def sound(self) -> None:
        found = [finding for finding in verify.verify(self.database.connection) if finding.severity == "error"]
        assert found == []


def move(*, finished: Any = None, started: Any = None, end: Any = None) -> Snapshot:
    return Snapshot(abandoned=False, end=end, finished=finished, started=started)


def end(
    status: Any,
    *,
    detail: str | None = None,
    due_at: int | None = None,
    error: str | None = None,
    pause_ms: int | None = None,
) -> End:
    return End(detail, due_at, error, None, pause_ms, status)
