"""The passes over managed resources: which is due, how many at once, and what the clock asks of those under way."""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ..resource_managers import passes
from ..resource_managers.passes import Pass
from ..state.managed_resources import ResourceClaim
from ..state.runners import RunnerOutcome
from ..wire import identities
from ..wire.errors import PiWorkflowsError, StateUnavailableError
from .committer import Transaction
from .manager_sources import NO_FACTS, ManagerSource, ManagerSources
from .resource_runner_supervisor import ResourceRunnerSupervisor

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .server import WorkflowServer

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 2.0
"""How often a manager that has no source is looked for again."""

_MANAGERS: Final = """
    SELECT DISTINCT c.project_id, p.canonical_path, c.controller_name
    FROM controller_resources c JOIN projects p USING (project_id)
"""
_NEXT: Final = "SELECT min(available_at) FROM controller_queue WHERE available_at > ?"


class Reconciling:
    """The passes of one server, on its loop."""

    def __init__(self, server: WorkflowServer) -> None:
        self._server = server
        self.sources = ManagerSources(server)
        self.passes: dict[str, ResourceRunnerSupervisor] = {}
        self._projects: dict[str, tuple[str, set[str]]] = {}
        self._missing: dict[tuple[str, str], float] = {}
        self._asked: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def owner_id(self) -> str:
        """Under what name this server claims managed resources."""
        return passes.OWNER + self._server.ownership.server_id

    def load(self) -> None:
        """Know the managers that have resources in the file."""
        for project_id, path, manager in self._server.database.connection.execute(_MANAGERS):
            self._projects.setdefault(project_id, (path, set()))[1].add(manager)

    def applied(self, project_id: str, path: str, manager: str) -> None:
        """A resource of a manager was applied, whose source may be another now."""
        self._projects.setdefault(project_id, (path, set()))[1].add(manager)
        self._missing.pop((project_id, manager), None)
        self.wake()

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    async def run(self) -> None:
        """Until the server stops."""
        server = self._server
        while not server.stopping:
            self._wake.clear()
            try:
                await self._fill()
                self._keep_time()
                delay = self._delay()
            except (StateUnavailableError, sqlite3.Error):
                delay = IDLE_SECONDS
            except Exception:
                log.exception("managed resources could not be looked at")
                delay = IDLE_SECONDS
            try:
                await asyncio.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                pass

    def stop(self, outcome: RunnerOutcome) -> None:
        """End all passes; what they had not ended is made again."""
        for supervisor in list(self.passes.values()):
            supervisor.stop(outcome)

    def kill(self, outcome: RunnerOutcome) -> None:
        """End all passes at once."""
        for supervisor in list(self.passes.values()):
            supervisor.kill(outcome)

    def end_passes(self, uid: str) -> None:
        """End the pass over a resource that was deleted by force: its claim is gone."""
        for supervisor in list(self.passes.values()):
            if supervisor.one.resource.uid == uid:
                supervisor.kill("claimLost")

    # -- what is due --------------------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        """Begin passes until there is no room, or nothing is ready; a project after the other."""
        waiting = list(self._projects)
        while waiting and not self._server.stopping:
            for project_id in list(waiting):
                if len(self.passes) >= self._server.options.max_passes:
                    return
                if not await self._begin(project_id):
                    waiting.remove(project_id)

    async def _begin(self, project_id: str) -> bool:
        """Begin the next pass of a project; tells whether there was one."""
        path, _ = self._projects[project_id]
        found = self._claimable(project_id)
        if not found:
            return False
        reconcile_id = identities.new_id()
        # A claim of our own that ran out is no reason for a second pass beside the one that still has to end.
        held = [(one.resource_manager, one.key) for one in self._claims() if one.project_id == project_id]

        def claim(transaction: Transaction) -> Pass | None:
            return passes.begin(
                transaction.sql(), project_id, found, self.owner_id, held, reconcile_id, transaction.now
            )

        one = await self._server.committer.submit(claim)
        if one is None:
            return False
        manager = one.claim.resource_manager
        source = found[manager]
        supervisor = ResourceRunnerSupervisor(
            self._server,
            one,
            source,
            self.sources.known_facts(source) or NO_FACTS,
            path,
            self.sources.environment(project_id, manager),
        )
        self.passes[reconcile_id] = supervisor
        self._server.quicken()
        self._spawn(self._make(supervisor))
        return True

    async def _make(self, supervisor: ResourceRunnerSupervisor) -> None:
        try:
            await supervisor.run()
        finally:
            del self.passes[supervisor.one.reconcile_id]
            self._server.slow_down()
            self.wake()

    def _claimable(self, project_id: str) -> dict[str, ManagerSource]:
        """The managers of a project that have a source, are known, and have room for a pass."""
        path, managers = self._projects[project_id]
        now = self._server.clock.monotonic()
        found = {}
        for manager in managers:
            if self._missing.get((project_id, manager), 0) > now:
                continue
            source = self.sources.resolve(manager, project_id, path)
            if source is None:
                self._missing[project_id, manager] = now + LOOK_SECONDS
                continue
            facts = self.sources.known_facts(source)
            if facts is None:
                self._ask(source, project_id, path)
            elif facts.concurrency is None or self._under_way(project_id, manager) < facts.concurrency:
                found[manager] = source
        return found

    def _under_way(self, project_id: str, manager: str) -> int:
        return sum((one.project_id, one.resource_manager) == (project_id, manager) for one in self._claims())

    def _claims(self) -> list[ResourceClaim]:
        return [supervisor.one.claim for supervisor in self.passes.values()]

    def _ask(self, source: ManagerSource, project_id: str, path: str) -> None:
        """Find out about a source, aside; one that cannot say is used all the same, and its passes tell why."""
        if source.digest in self._asked:
            return
        self._asked.add(source.digest)

        async def find_out() -> None:
            try:
                await self.sources.facts(source, project_id, path)
            except PiWorkflowsError as error:
                log.info("resource manager %r cannot be asked: %s", source.name, error)
                if not isinstance(error, StateUnavailableError):
                    self.sources.assume(source)
                else:
                    return  # asked again when it is looked for again, not at once
            finally:
                self._asked.discard(source.digest)
            self.wake()

        self._spawn(find_out())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a pass over a managed resource failed", exc_info=task.exception())

    # -- the clock ----------------------------------------------------------------------------------------------------

    def _delay(self) -> float:
        """How long nothing is to do, in seconds."""
        longest = POLL_SECONDS if self.passes else IDLE_SECONDS
        now = self._server.clock.now()
        row = self._server.database.connection.execute(_NEXT, (now,)).fetchone()
        return longest if row[0] is None else min(longest, (row[0] - now) / 1000 + 0.001)

    def _keep_time(self) -> None:
        """Renew claims of which a third is gone; stop passes that have taken too long."""
        now = self._server.clock.monotonic()
        for supervisor in list(self.passes.values()):
            supervisor.check_deadline()
            if not supervisor.over and now - supervisor.renewed_at > passes.LEASE_MS / 3000:
                supervisor.renewed_at = now
                self._renew(supervisor)

    def _renew(self, supervisor: ResourceRunnerSupervisor) -> None:
        def renewed(expires_at: int | None, error: BaseException | None) -> None:
            if error is not None:
                supervisor.renewed_at = -math.inf  # at once, when the file can be written again
            elif expires_at is None and not supervisor.over:
                supervisor.kill("claimLost")

        self._server.committer.submit_with(supervisor.renew, renewed)
