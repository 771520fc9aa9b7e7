"""What a store of managed resources must do, in plain dictionaries: the rules, without a file.

Each operation gives what the store must give, or raises what it must raise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pi_workflows_nb.wire.errors import (
    ClaimTargetError,
    ConflictError,
    EffectRequestConflictError,
    ManagedResourceConflictError,
    ManagedResourceError,
    ManagedResourceNotFoundError,
    NotFoundError,
    StaleClaimError,
    WorkflowRequestConflictError,
)


@dataclass
class Queued:
    at: int
    version: int = 1
    errors: int = 0


@dataclass(eq=False)
class Holding:
    """A claim, and the life of the resource for which it was made."""

    life: Life
    owner: str
    generation: int
    queue_version: int


@dataclass(eq=False)
class Life:
    """One life of a key; `uid` is what the store called it."""

    project: int
    manager: str
    key: str
    spec: Any
    status: Any
    uid: str = ""
    generation: int = 1
    deletion: int | None = None
    finalizers: tuple[str, ...] = ()
    queued: Queued | None = None
    holder: Holding | None = None
    expires: int = 0
    leases: int = 0
    events: list[tuple[str, str, str | None, int | None, dict[str, Any]]] = field(default_factory=list)
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> tuple[int, str, str]:
        return self.project, self.manager, self.key

    @property
    def version(self) -> int:
        return len(self.events)

    def shown(self) -> tuple[Any, ...]:
        return (
            self.manager, self.key, self.version, self.generation, self.deletion, self.finalizers, self.spec,
            self.status,
        )  # fmt: skip


class Model:
    def __init__(self) -> None:
        self.lives: dict[tuple[int, str, str], Life] = {}
        self.dead: list[Life] = []
        self.history: list[tuple[Life, int]] = []

    # What operations share

    def note(self, life: Life, kind: str, payload: dict[str, Any] | None = None, by: Holding | str = "control") -> None:
        actor = (by, None, None) if isinstance(by, str) else ("controller", by.owner, by.generation)
        life.events.append((kind, *actor, payload or {}))
        self.history.append((life, life.version))

    def find(self, project: int, manager: str, key: str) -> Life:
        life = self.lives.get((project, manager, key))
        if life is None:
            raise ManagedResourceNotFoundError
        return life

    def by_uid(self, project: int, uid: str) -> Life:
        for life in self.lives.values():
            if (life.project, life.uid) == (project, uid):
                return life
        raise ManagedResourceNotFoundError

    def check(self, life: Life, claim: Holding, now: int, *, expiry: bool = True) -> None:
        if claim.life.name != life.name:
            raise ClaimTargetError
        holder = life.holder
        if holder is None:
            raise StaleClaimError("", "missingAuthority")
        if holder.owner != claim.owner:
            raise StaleClaimError("", "ownerChanged")
        if holder.generation != claim.generation:
            raise StaleClaimError("", "generationChanged")
        if holder is not claim:
            raise StaleClaimError("", "tokenChanged")
        if expiry and life.expires <= now:
            raise StaleClaimError("", "expired")

    def at_version(self, life: Life, expected: int) -> None:
        if life.version != expected:
            raise ManagedResourceConflictError

    def wake(self, life: Life, at: int) -> None:
        if life.queued is None:
            life.queued = Queued(at)
        else:
            life.queued.at = min(life.queued.at, at)
            life.queued.version += 1

    # Resources

    def put(self, project: int, manager: str, key: str, spec: Any, initial: Any, now: int) -> Life:
        life = self.lives.get((project, manager, key))
        if life is None:
            status = {"observedGeneration": 0, "conditions": [], "resourceManagerStatus": initial}
            life = self.lives[project, manager, key] = Life(project, manager, key, spec, status)
            self.wake(life, now)
            self.note(life, "resource.created", {"generation": 1})
        elif spec != life.spec:
            life.spec, life.generation = spec, life.generation + 1
            self.wake(life, now)
            self.note(life, "resource.spec_updated", {"generation": life.generation})
        return life

    def update_status(
        self, project: int, manager: str, key: str, claim: Holding, status: Any, expected: int, finalizers: Any,
        now: int,
    ) -> Life:  # fmt: skip
        if finalizers is not None and len(set(finalizers)) < len(finalizers):
            raise ManagedResourceError
        life = self.find(project, manager, key)
        self.check(life, claim, now)
        self.at_version(life, expected)
        life.status = status
        if finalizers is not None:
            life.finalizers = tuple(finalizers)
        self.note(life, "resource.status_updated", by=claim)
        return life

    def update_finalizers(self, project: int, manager: str, key: str, finalizers: Any, expected: int) -> Life:
        if len(set(finalizers)) < len(finalizers):
            raise ManagedResourceError
        life = self.find(project, manager, key)
        self.at_version(life, expected)
        life.finalizers = tuple(finalizers)
        self.note(life, "resource.finalizers_updated")
        return life

    def request_deletion(self, project: int, manager: str, key: str, now: int) -> Life:
        life = self.find(project, manager, key)
        if life.deletion is None:
            life.deletion = now
            self.wake(life, now)
            self.note(life, "resource.deletion_requested")
        return life

    def delete(self, project: int, manager: str, key: str, claim: Holding, expected: int, now: int) -> bool:
        life = self.find(project, manager, key)
        self.check(life, claim, now)
        self.at_version(life, expected)
        if life.deletion is None or life.finalizers:
            return False
        self.note(life, "resource.deleted", by=claim)
        life.queued = life.holder = None
        life.children = {}
        self.dead.append(self.lives.pop(life.name))
        return True

    # The queue

    def order(self, project: int) -> list[Life]:
        waiting = [life for life in self.lives.values() if life.project == project and life.queued]
        return sorted(waiting, key=lambda life: (life.queued.at, life.manager, life.key))  # type: ignore[union-attr]

    def claim_next(self, project: int, managers: Any, owner: str, lease: int, exclude: Any, now: int) -> Holding | None:
        for life in self.order(project):
            assert life.queued is not None
            free = life.holder is None or life.expires <= now
            wanted = life.manager in managers and (life.manager, life.key) not in exclude
            if free and wanted and life.queued.at <= now:
                life.leases += 1
                life.holder = Holding(life, owner, life.leases, life.queued.version)
                life.expires = now + lease
                self.note(life, "lease.claimed", {"expiresAt": life.expires}, life.holder)
                return life.holder
        return None

    def renew(self, project: int, claim: Holding, lease: int, now: int) -> bool:
        life = self.held(project, claim, now, expiry=True)
        if life is None:
            return False
        life.expires = now + lease
        return True

    def settle(self, project: int, claim: Holding, now: int) -> bool:
        life = self.held(project, claim, now, expiry=False)
        if life is None:
            return False
        if life.queued and life.queued.version == claim.queue_version:
            life.queued = None
        life.holder = None
        self.note(life, "lease.released", by=claim)
        return True

    def requeue(self, project: int, claim: Holding, at: int, error: str | None, now: int) -> bool:
        life = self.held(project, claim, now, expiry=False)
        if life is None:
            return False
        assert life.queued is not None
        woken = life.queued.version != claim.queue_version
        life.queued.at = min(life.queued.at, at) if woken else at
        life.queued.version += 1
        life.queued.errors = 0 if error is None else life.queued.errors + 1
        life.holder = None
        self.note(life, "lease.released", by=claim)
        return True

    def held(self, project: int, claim: Holding, now: int, *, expiry: bool) -> Life | None:
        life = self.lives.get(claim.life.name)
        if life is None or project != life.project:
            return None
        try:
            self.check(life, claim, now, expiry=expiry)
        except StaleClaimError:
            return None
        return life

    # Effects

    def reserve_effect(
        self, project: int, uid: str, key: str, claim: Holding, kind: str, request: str, generation: int, now: int
    ) -> bool:
        life = self.by_uid(project, uid)
        self.check(life, claim, now)
        known = life.effects.get(key)
        if known is not None:
            if (known["kind"], known["request"], life.generation) != (kind, request, generation):
                raise EffectRequestConflictError
            return False
        life.effects[key] = {
            "kind": kind, "request": request, "state": "pending", "ref": None, "error": None, "started": now,
            "completed": None, "events": ["effect.reserved"],
        }  # fmt: skip
        return True

    def update_effect(
        self, project: int, uid: str, key: str, claim: Holding, state: str, ref: Any, error: Any, now: int
    ) -> dict[str, Any]:
        life = self.by_uid(project, uid)
        self.check(life, claim, now)
        effect = life.effects.get(key)
        if effect is None:
            raise NotFoundError
        effect.update(state=state, ref=ref, error=error, completed=None if state == "pending" else now)
        effect["events"].append(f"effect.{state}")
        return effect

    # Children

    def child(self, project: int, request: str) -> tuple[Life, dict[str, Any]]:
        for life in self.lives.values():
            for child in life.children.values():
                if (life.project, child["id"]) == (project, request):
                    return life, child
        raise NotFoundError

    def reserve_workflow(
        self, project: int, uid: str, key: str, claim: Holding, workflow: str, given: bytes, now: int
    ) -> bool:
        life = self.by_uid(project, uid)
        self.check(life, claim, now)
        known = life.children.get(key)
        if known is not None:
            if (known["workflow"], known["input"]) != (workflow, given):
                raise WorkflowRequestConflictError
            return False
        life.children[key] = {
            "id": "", "workflow": workflow, "input": given, "run": None, "state": "pending", "attempt": 0,
            "error": None, "made": now,
        }  # fmt: skip
        return True

    def update_workflow(
        self, project: int, request: str, claim: Holding, state: str, run: Any, attempt: Any, error: Any, now: int
    ) -> dict[str, Any]:
        life, child = self.child(project, request)
        self.check(life, claim, now)
        child.update(state=state, error=error, run=run or child["run"])
        child["attempt"] = child["attempt"] if attempt is None else attempt
        return child

    def complete_workflow(
        self, project: int, request: str, state: str, run: Any, attempt: Any, error: Any, now: int
    ) -> dict[str, Any]:
        if state in ("pending", "running"):
            raise ConflictError
        life, child = self.child(project, request)
        if run is not None and child["run"] is not None and run != child["run"]:
            raise ConflictError
        child.update(state=state, error=error)
        child["attempt"] = child["attempt"] if attempt is None else attempt
        self.wake(life, now)
        payload = {"requestId": request, "runId": child["run"], "state": state}
        self.note(life, "workflow_state_changed", payload, "system")
        return child

    # Events

    def record(
        self, project: int, manager: str, key: str, kind: str, payload: dict[str, Any], claim: Holding | None, now: int
    ) -> int:
        life = self.find(project, manager, key)
        if claim is not None:
            self.check(life, claim, now)
        self.note(life, kind, payload, claim or "control")
        return life.version

    def newest(self, project: int, manager: str | None, key: str | None, limit: int) -> list[tuple[Any, ...]]:
        found = [
            (life.manager, life.key, version, life.events[version - 1][0], life.events[version - 1][4])
            for life, version in reversed(self.history)
            if self.lives.get(life.name) is life and life.project == project
            and manager in (None, life.manager) and key in (None, life.key)
        ]  # fmt: skip
        return found[:limit]
