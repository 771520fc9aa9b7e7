"""What the run side of a store must do, in plain objects: the life of runs as the design tells it, without a file.

Each operation gives what the store must give, or raises what it must raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pi_workflows_nb.wire.errors import ClaimTargetError, ConflictError, NotFoundError, StaleClaimError

TERMINAL: Final = ("completed", "failed", "timed_out", "cancelled")
STOPPED: Final = ("workflowSourceChanged", "runnerNoProgress")
HOLDING: Final = ("queued", "starting", "running")
EXECUTED: Final = ("starting", "running")
CONTROL: Final = "workflow-control"
CONTROL_LEASE: Final = 30_000
SYSTEM: Final = ("system", None)

Actor = tuple[str, str | None]


@dataclass(eq=False)
class Hold:
    """A claim of a run that its owner believes in."""

    run: Run
    owner: str
    generation: int
    lease: int
    expires: int
    kind: str

    @property
    def actor(self) -> Actor:
        return self.kind, self.owner


@dataclass(eq=False)
class Run:
    """`waits` is what its open attempt waits for, `until` when that is over; `active` the node that it executes."""

    project: int
    run_id: str
    session: str | None
    made: int
    number: int
    due: int
    parent: Run | None = None
    lineage: str | None = None
    status: str = "queued"
    queue: str = "queued"
    paused: bool = False
    code: str | None = None
    output: Any = None
    error: str | None = None
    holder: Hold | None = None
    expires: int = 0
    generation: int = 0
    waits: str | None = None
    until: int | None = None
    asked: int = 0
    validating: bool = False
    active: str | None = None
    effects: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, str, str | None, int | None, dict[str, Any]]] = field(default_factory=list)

    @property
    def name(self) -> tuple[int, str]:
        return self.project, self.run_id

    @property
    def chain(self) -> list[Run]:
        """The run and those before it, newest first."""
        return [self] if self.parent is None else [self, *self.parent.chain]

    @property
    def session_id(self) -> str:
        return self.session or f"headless:{self.chain[-1].run_id}"

    @property
    def request(self) -> str:
        return f"{self.run_id}-request-{self.asked}"

    @property
    def restarts(self) -> int:
        return sum(one.lineage == "restart" for one in self.chain)

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    def held(self, now: int) -> bool:
        return self.holder is not None and self.expires > now

    def note(self, kind: str, payload: dict[str, Any], actor: Actor = SYSTEM, generation: int | None = None) -> None:
        self.events.append((kind, *actor, generation, payload))

    def by_holder(self) -> tuple[Actor, int | None]:
        return (SYSTEM, None) if self.holder is None else (self.holder.actor, self.generation)


class RunModel:
    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.made = 0

    # Who may

    def find(self, run_id: str) -> Run | None:
        return next((run for run in self.runs if run.run_id == run_id), None)

    def changing(self, project: int, run_id: str, claim: Hold | None, now: int, *, expiry: bool = True) -> Run:
        run = self.find(run_id)
        if run is None or run.project != project:
            raise NotFoundError
        if claim is not None:
            self.check(run, claim, now, expiry=expiry)
        return run

    def executed(self, project: int, run_id: str, claim: Hold, now: int) -> Run:
        run = self.changing(project, run_id, claim, now)
        if run.queue not in EXECUTED:
            raise ConflictError
        return run

    def check(self, run: Run, claim: Hold, now: int, *, expiry: bool = True) -> None:
        if claim.run.run_id != run.run_id:
            raise ClaimTargetError
        holder = run.holder
        if holder is None:
            raise StaleClaimError("", "missingAuthority")
        if holder.owner != claim.owner:
            raise StaleClaimError("", "ownerChanged")
        if holder.generation != claim.generation:
            raise StaleClaimError("", "generationChanged")
        if holder is not claim:
            raise StaleClaimError("", "tokenChanged")
        if expiry and run.expires <= now:
            raise StaleClaimError("", "expired")

    def hold(self, run: Run, owner: str, lease: int, now: int, kind: str | None = None) -> Hold | None:
        if run.held(now):
            return None
        run.generation += 1
        kind = kind or ("host" if owner.startswith("host-") else "session")
        run.holder = Hold(run, owner, run.generation, lease, now + lease, kind)
        run.expires = now + lease
        run.note("lease.claimed", {"expiresAt": run.expires}, run.holder.actor, run.generation)
        return run.holder

    def allowed(self, run: Run, control: str) -> bool:
        if run.over or run.queue == "done":
            return False
        if run.paused or run.code in STOPPED:
            return control in ("cancel", "resume")
        if control == "answer":
            return run.status == "waiting" and run.waits in ("checkpoint", "event")
        return control in ("cancel", "pause")

    def require(self, run: Run, control: str) -> None:
        if not self.allowed(run, control):
            raise ConflictError

    # A session's place

    def mates(self, run: Run) -> list[Run]:
        found = [one for one in self.runs if one.session == run.session and one is not run]
        return sorted(found, key=lambda one: (one.made, one.number))

    def wants(self, run: Run, now: int) -> bool:
        ready = run.status == "queued" or (run.status == "running" and run.due <= now)
        return run.queue == "parked" and ready and not run.paused and run.code not in STOPPED

    def is_free(self, run: Run, now: int, *, new: bool = False) -> bool:
        if run.session is None:
            return True
        mates = self.mates(run)
        older = [one for one in mates if new or (one.made, one.number) < (run.made, run.number)]
        return not any(one.queue in HOLDING for one in mates) and not any(self.wants(one, now) for one in older)

    def pass_on(self, run: Run, now: int) -> None:
        if run.session is None:
            return
        line = sorted([run, *self.mates(run)], key=lambda one: (one.made, one.number))
        line = [one for one in line if one in self.runs]
        if any(one.queue in HOLDING for one in line):
            return
        first = next((one for one in line if self.wants(one, now)), None)
        if first is not None and first.status == "queued":
            first.queue = "queued"
            first.note("run.queue_queued", {"status": "queued"}, ("session", first.session_id))

    # Making

    def add(self, project: int, run_id: str, session: str | None, now: int, parent: Run | None, lineage: Any) -> Run:
        self.made += 1
        run = Run(project, run_id, session, now, self.made, now, parent, lineage)
        run.queue = "queued" if self.is_free(run, now, new=True) else "parked"
        run.note("run.queued", {}, ("session", run.session_id))
        self.runs.append(run)
        return run

    def reserve(self, project: int, run_id: str, session: str | None, now: int) -> Run:
        if self.find(run_id) is not None:
            raise ConflictError
        return self.add(project, run_id, session, now, None, None)

    def prepare(
        self, project: int, run_id: str, session: str | None, owner: str, lease: int, now: int
    ) -> tuple[bool, Hold | None]:
        known = self.find(run_id)
        if known is not None:
            if (known.project, known.session, known.parent) != (project, session, None):
                raise ConflictError
            return True, None
        self.add(project, run_id, session, now, None, None)
        return False, self.claim(project, run_id, owner, lease, now)

    def answer(self, project: int, run_id: str, heir: str, now: int) -> Run:
        run = self.changing(project, run_id, None, now)
        if self.find(heir) is not None:
            raise ConflictError
        self.require(run, "answer")
        if run.waits == "event":
            if run.until is not None and run.until <= now:
                raise ConflictError
            self.over_with(run, "node_finished", "event")
        run.holder, run.queue, run.code, run.waits = None, "done", None, None
        run.note("run.queue_done_for_continuation", {"continuationRunId": heir}, ("session", run.session_id))
        return self.add(project, heir, run.session, now, run, "continuation")

    def restart(self, project: int, run_id: str, now: int) -> Run:
        run = self.changing(project, run_id, None, now)
        ended = (run.status, run.output, run.error)
        if (
            not run.over
            or run.status == "cancelled"
            or any(one.parent is run for one in self.runs)
            or run.restarts >= 3
            or any((one.status, one.output, one.error) == ended for one in run.chain[1:])
        ):
            raise ConflictError
        return self.add(project, "", run.session, now, run, "restart")

    def delete(self, project: int, run_id: str, claim: Hold | None, now: int) -> None:
        run = self.changing(project, run_id, claim, now)
        led = run.parent is not None or any(one.parent is run for one in self.runs)
        if (claim is None and run.holder is not None) or led:
            raise ConflictError
        if {"pending", "applying", "ambiguous"} & set(run.effects.values()):
            raise ConflictError
        self.runs.remove(run)
        self.pass_on(run, now)

    # Claims

    def claimable(self, run: Run, now: int) -> bool:
        begun = run.queue in HOLDING or (run.queue == "parked" and run.status == "running")
        return (
            begun
            and run.status in ("queued", "running")
            and not run.paused
            and not run.held(now)
            and run.code not in STOPPED
            and (run.queue in HOLDING or self.is_free(run, now))
        )

    def enqueue(self, project: int, run_id: str, at: int, now: int) -> bool:
        run = self.changing(project, run_id, None, now)
        if not self.claimable(run, now) or run.waits is not None:
            return False
        run.due = min(run.due, at)
        return True

    def claim(self, project: int, run_id: str, owner: str, lease: int, now: int) -> Hold | None:
        run = self.changing(project, run_id, None, now)
        if not run.held(now):
            self.expire(run, now)
        if not self.claimable(run, now):
            return None
        if self.settle_uncertain(run):
            self.stop_for_a_person(run, now)
            return None
        if run.waits == "sleep":
            self.over_with(run, "node_finished", "nap")
        run.waits = run.active = run.code = None
        run.status, run.queue = "running", "starting"
        return self.hold(run, owner, lease, now)

    def claim_next(self, project: int, owner: str, lease: int, now: int) -> tuple[str, Hold] | None:
        due = [
            run
            for run in self.runs
            if run.project == project and run.due <= now and not run.held(now)
            and (run.queue in HOLDING or run.status == "running" or (run.waits == "event" and run.until is not None))
        ]  # fmt: skip
        for run in sorted(due, key=lambda run: (run.due, run.made, run.number)):
            if (claim := self.claim(project, run.run_id, owner, lease, now)) is not None:
                return run.run_id, claim
        return None

    def validate(self, project: int, run_id: str, owner: str, lease: int, now: int) -> Hold | None:
        run = self.changing(project, run_id, None, now)
        if (run.status, run.queue, run.paused, run.validating) != ("waiting", "parked", False, True):
            raise ConflictError
        return self.hold(run, owner, lease, now)

    def control(self, project: int, run_id: str, owner: str, lease: int, now: int) -> Hold | None:
        run = self.changing(project, run_id, None, now)
        if run.holder is None and (run.status, run.queue) != ("waiting", "parked"):
            raise ConflictError
        return self.hold(run, owner, lease, now)

    def mark_running(self, project: int, run_id: str, claim: Hold, now: int) -> None:
        run = self.executed(project, run_id, claim, now)
        run.queue = "running"
        run.note("run.queue_running", {"status": "running"}, claim.actor, run.generation)

    def renew(self, project: int, run_id: str, claim: Hold, now: int) -> int | None:
        try:
            run = self.changing(project, run_id, claim, now)
        except StaleClaimError:
            return None
        run.expires = now + claim.lease
        return run.expires

    def release(self, project: int, run_id: str, claim: Hold, now: int) -> None:
        run = self.changing(project, run_id, claim, now, expiry=False)
        if run.queue != "parked":
            raise ConflictError
        run.holder = None
        run.note("lease.released", {}, claim.actor, run.generation)

    # Executing: what a runner proposes

    def work(self, run_id: str, claim: Hold, now: int, do: Callable[[Run], Any]) -> Any:
        run = self.find(run_id)
        if run is None:
            raise NotFoundError
        self.check(run, claim, now)
        if run.status != "running":
            raise ConflictError
        given = do(run)
        if run.holder is claim and run.expires <= now + claim.lease * 2 // 3:
            run.expires = now + claim.lease
        return given

    def begin(self, run: Run, node: str) -> None:
        if run.active is not None:
            raise ConflictError
        run.active = node
        run.note("node_started", {"node": node})

    def finish(self, run: Run) -> None:
        if run.active is None:
            raise ConflictError
        if run.effects.get(run.active) == "applying":
            run.effects[run.active] = "applied"
        run.note("node_finished", {"node": run.active})
        run.active = None

    def stop(self, run: Run, waits: str, node: str, until: int | None, now: int) -> None:
        """Park a run that sleeps or waits; a plain checkpoint ends its attempt, everything else keeps it open."""
        self.begin(run, node)
        claim = run.holder
        assert claim is not None
        if waits == "checkpoint":
            self.finish(run)
        run.active, run.waits, run.until = None, waits, until
        run.status = "running" if waits == "sleep" else "waiting"
        run.queue, run.due, run.holder, run.code = "parked", run.due if until is None else until, None, None
        sleeps = waits == "sleep"
        run.note("run_sleeping" if sleeps else "run_waiting", {"dueAt": until} if sleeps else {})
        run.note("run.queue_parked", {"status": "parked"}, claim.actor, run.generation)
        self.pass_on(run, now)

    def act(self, run: Run, node: str) -> str:
        """Reserve the effect of an action, which is named for how it recovers; or adopt what stands."""
        self.begin(run, node)
        known = run.effects.get(node)
        if known in (None, "pending") or (known == "ambiguous" and node == "idempotent"):
            run.effects[node] = "applying"
            return "apply"
        return "applied" if known == "applied" else "ambiguous"

    # Stopping

    def over_with(self, run: Run, event: str, node: str) -> None:
        run.note(event, {"node": node})
        run.waits, run.until = None, None

    def expire(self, run: Run, now: int) -> bool:
        if run.status != "waiting" or run.queue != "parked" or run.paused or run.waits != "event" or run.until is None:
            return False
        self.over_with(run, "node_timed_out", "event")
        run.status, run.due, run.code, run.holder = "running", now, None, None
        run.note("run.resumed", {"status": "parked"})
        return True

    def settle_uncertain(self, run: Run) -> bool:
        doubt = False
        for node, state in run.effects.items():
            if state == "applying":
                run.effects[node] = "ambiguous" if node == "manual" else "pending"
                doubt |= node == "manual"
        return doubt

    def stop_for_a_person(self, run: Run, now: int) -> None:
        by, generation = run.by_holder()
        run.status, run.queue, run.code, run.holder = "waiting", "parked", "effectAmbiguous", None
        run.waits, run.active = "effect", None
        run.note("run.effect_ambiguous", {"code": run.code, "status": "waiting"}, by, generation)
        self.pass_on(run, now)

    def park(self, run: Run, at: int, now: int, event: str = "run.queue_parked", code: str | None = None) -> None:
        by, generation = run.by_holder()
        run.queue, run.due, run.code, run.holder, run.active = "parked", at, code, None, None
        run.note(event, {"status": "parked"} | ({"code": code} if code else {}), by, generation)
        self.pass_on(run, now)

    def park_ambiguous(self, project: int, run_id: str, claim: Hold, now: int) -> None:
        run = self.executed(project, run_id, claim, now)
        if run.effects.get("manual") != "applying" and "ambiguous" not in run.effects.values():
            raise ConflictError
        self.settle_uncertain(run)
        self.stop_for_a_person(run, now)

    def word(self, run: Run, node: str, action: str, now: int) -> None:
        """A person's word on an effect that may have happened."""
        if action == "retry" and run.over:
            raise ConflictError
        run.effects[node] = "applied" if action == "confirm" else "pending"
        doubt = "ambiguous" in run.effects.values()
        if (run.code, run.status) == ("effectAmbiguous", "waiting") and not doubt:
            run.status, run.queue, run.due, run.code = "running", "parked", now, None
            run.waits, run.holder = None, None
            run.note("run.resumed", {"status": "parked"}, ("human", None))

    def late(self, project: int, run_id: str, claim: Hold, request: str, now: int) -> bool:
        run = self.changing(project, run_id, claim, now)
        if run.paused or run.waits != "request" or request != run.request:
            raise ConflictError
        if not self.is_free(run, now):
            return False
        self.over_with(run, "node_timed_out", "agent")
        run.status, run.queue, run.code, run.validating = "running", "starting", None, False
        run.note("run.interaction_timeout_started", {"requestId": request}, claim.actor, run.generation)
        return True

    # What a person does

    def take_control(self, run: Run, now: int, *, free: bool = False) -> Hold | None:
        if run.holder is None and not free:
            return None
        return self.hold(run, CONTROL, CONTROL_LEASE, now, "system")

    def pause(self, run: Run, now: int) -> None:
        if run.paused:
            return
        self.require(run, "pause")
        self.take_control(run, now)
        if run.queue != "parked":
            run.active = None
        run.paused, run.queue, run.holder = True, "parked", None
        run.note("run.paused", {"status": "parked"}, ("control", "me"))
        self.pass_on(run, now)

    def pause_parked(self, project: int, run_id: str, now: int) -> None:
        run = self.changing(project, run_id, None, now)
        if run.queue != "parked":
            raise ConflictError
        self.pause(run, now)

    def resume(self, run: Run, now: int) -> None:
        if not run.paused and run.code not in STOPPED and run.status in ("queued", "running"):
            return
        self.require(run, "resume")
        run.paused = False
        says = "waiting" if run.status == "waiting" else "parked"
        if run.status == "queued":
            says = run.queue = "queued" if self.is_free(run, now) else "parked"
        if run.status != "waiting":
            run.code = None
            run.due = run.until if run.waits == "sleep" and run.until is not None else now
        run.note("run.resumed", {"status": says}, ("control", "me"))

    def resume_wait(self, project: int, run_id: str, now: int) -> None:
        run = self.changing(project, run_id, None, now)
        if run.status != "waiting" or not run.paused:
            raise ConflictError
        self.resume(run, now)

    # Ends

    def end(
        self, run: Run, status: str, code: str, error: str | None, now: int, by: Actor, generation: int | None,
        *, stale: bool = False,
    ) -> None:  # fmt: skip
        run.status, run.paused, run.holder, run.error = status, False, None, error
        run.queue = {"completed": "done", "cancelled": "cancelled"}.get(status, "failed")
        run.code = None if status == "completed" else code
        run.waits, run.active, run.validating = None, None, False
        close = {"pending": "cancelled", "applying": "ambiguous"}
        run.effects = {node: close.get(state, state) for node, state in run.effects.items()}
        payload: dict[str, Any] = {"status": run.queue}
        if stale:
            payload |= {"code": code, "staleControl": True}
        elif run.code is not None:
            payload |= {"code": code, "error": error}
        run.note(f"run.queue_{run.queue}", payload, by, generation)
        self.pass_on(run, now)

    def complete(self, project: int, run_id: str, claim: Hold, output: Any, now: int) -> None:
        run = self.executed(project, run_id, claim, now)
        run.output = output
        self.end(run, "completed", "", None, now, claim.actor, run.generation)

    def fail(self, project: int, run_id: str, error: str, claim: Hold | None, now: int) -> bool:
        run = self.changing(project, run_id, claim, now)
        if run.over:
            return False
        if claim is None:
            self.require(run, "cancel")
            if run.holder is not None:
                raise ConflictError
        by, generation = (SYSTEM, None) if claim is None else (claim.actor, run.generation)
        self.end(run, "failed", "failed", error, now, by, generation)
        return True

    def cancel(self, project: int, run_id: str, claim: Hold | None, now: int) -> bool:
        run = self.changing(project, run_id, claim, now)
        if run.over:
            return False
        if claim is None:
            self.require(run, "cancel")
        by, generation, stale = SYSTEM, None, None
        if claim is not None:
            by, generation = claim.actor, run.generation
        elif run.holder is not None:
            stale = self.take_control(run, now)
            by, generation = ("control", CONTROL), stale and run.generation
        error = "Workflow run cancelled"
        self.end(run, "cancelled", "cancelled", error, now, by, generation, stale=stale is not None)
        return True

    def cancel_stale(self, project: int, run_id: str, now: int) -> bool:
        run = self.changing(project, run_id, None, now)
        if run.over or run.held(now):
            return False
        self.require(run, "cancel")
        self.take_control(run, now, free=True)
        by = ("control", "tidy")
        self.end(run, "cancelled", "cancelled", "Workflow run cancelled", now, by, run.generation, stale=True)
        return True

    def record(self, project: int, run_id: str, claim: Hold | None, now: int) -> int:
        run = self.changing(project, run_id, claim, now)
        by = ("session", "notebook-z") if claim is None else claim.actor
        run.note("noted", {"n": 1}, by, run.generation or None)
        return len(run.events)

    # A new server

    def recover(self, now: int) -> None:
        line = sorted(self.runs, key=lambda run: (run.due, run.made, run.number))
        for run in line:
            if run.due <= now:
                self.expire(run, now)
        for run in line:
            if not run.over and self.settle_uncertain(run):
                self.stop_for_a_person(run, now)
        for run in line:
            if run.queue in EXECUTED:
                self.park(run, now, now)
        for run in line:
            if run.queue == "parked" and run.holder is not None:
                by, generation = run.by_holder()
                run.holder = None
                run.note("lease.released", {}, by, generation)
        for run in line:
            if self.wants(run, now):
                self.pass_on(run, now)
