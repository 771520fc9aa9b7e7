"""The server: owner of one state file, scheduler of its runs, supervisor of their runners.

It runs on one asyncio loop with the one writing connection on the same thread, in a kernel's background thread or in a
process of its own; it is the same code in both. It never imports or executes workflow code.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any, Final

from ..state import runners, runs, server_row, transitions
from ..state.database import Database
from ..wire import canonical_json, identities
from ..wire.client_messages import Farewell
from ..wire.errors import PiWorkflowsError, StaleClaimError, StateFileError, StateUnavailableError
from ..wire.runner_messages import encode
from ..wire.sockets import socket_path
from ..workflows import sources
from . import launch as launching
from . import ownership, recovery
from .apart import Apart
from .child_runs import ChildRuns
from .clock import LATE_SECONDS, Clock, Drift, Lateness, SystemClock
from .committer import Committer, Transaction
from .courtesy import Courtesy
from .environments import Environments
from .launch import Launch
from .listener import Listener
from .live_view import live_view, run_list
from .nursery import Nursery, NurseryEndedError
from .options import Options
from .processes import ProcessRegistry
from .pruning import Pruning
from .ready_queue import ReadyQueue
from .reconciling import Reconciling
from .retaining import Retaining
from .sessions import Sessions
from .subscriptions import Subscriptions
from .upkeep import Upkeep
from .workflow_runner_supervisor import WorkflowRunnerSupervisor

log = logging.getLogger(__name__)

SWITCH_SECONDS: Final = 0.0005
NURSERY_TRIES: Final = 3


class WorkflowServer:
    """Serves one state file. All methods are called on its own loop."""

    def __init__(self, path: Path, home: Path, options: Options, clock: Clock | None = None) -> None:
        self.path = path
        self.options = options
        self.run_ahead = options.run_ahead
        self.clock: Clock = clock or SystemClock()
        self.folder = path.with_name(path.name + ".d")
        self.logs = self.folder / "logs"
        self.transfers = self.folder / "transfers"
        self.sources = self.folder / "sources"
        self.signing_key = sources.signing_key(home)
        self.environments = Environments()
        self.supervisors: dict[str, WorkflowRunnerSupervisor | None] = {}
        self.processes = ProcessRegistry()
        self.lateness = Lateness()
        self.drift = Drift()
        self.nursery: Nursery
        self.database: Database
        self.ownership: server_row.Ownership
        self.committer: Committer
        self.pruning: Pruning
        self.apart = Apart()
        self._ready = ReadyQueue(self.clock)
        self._wake = asyncio.Event()
        self._stopping = False
        self._owns = False
        self._replacing = False
        self._stopped = asyncio.Event()
        self.serving = asyncio.Event()
        self.farewell: Farewell = "lost"
        self.listener = Listener(self, socket_path(path, home))
        self._tasks: set[asyncio.Task[Any]] = set()
        self.subscriptions = Subscriptions(self.view, self.clock)
        self.reconciling = Reconciling(self)
        self.child_runs = ChildRuns(self)
        self.sessions = Sessions(self)
        self._verified: set[str] = set()
        self._switch_interval: float | None = None

    # -- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Own the file, recover, serve. On an error nothing is left behind."""
        Database.look_at(self.path)
        try:
            await self._start()
        except OSError as error:
            raise StateFileError(
                f"{self.path} cannot be served, since what belongs beside it cannot be made ({error}): make room and"
                " its folder writable, or choose another path"
            ) from error

    async def _start(self) -> None:
        for folder in (self.folder, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in reversed(range(NURSERY_TRIES)):
            try:
                await self._own()
                break
            except NurseryEndedError as error:
                # Killed by somebody, as it may be at any later moment too.
                if not left:
                    raise StateUnavailableError(str(error)) from None
        self.committer = Committer(
            self.database,
            self.clock,
            self.ownership,
            self._changed,
            self._ownership_lost,
            on_flushed=Courtesy().rest if self.options.in_kernel else lambda: None,
            on_jump=self._clock_was_set,
        )
        self.pruning = Pruning(self.database, self.committer, self.logs, self.clock.now)
        self._owns = True
        try:
            # Before the recovery, so that those who look for the new owner find it at once; it answers after it.
            await self.listener.start()
            await recovery.recover(self)
        except BaseException:
            self.listener.close_door()
            await self._give_back()
            self.listener.stop(self.farewell)
            raise
        self.farewell = "stopped"
        self.serving.set()
        self._ready.load(self.database.connection)
        self.reconciling.load()
        self.sessions.load()
        self.spawn_task(self._schedule())
        self.spawn_task(self.reconciling.run())
        self.spawn_task(Upkeep(self).run())
        self.spawn_task(Retaining(self).run())

    async def _own(self) -> None:
        """Start a nursery, open the file under its locks, and become the owner; all of it or nothing."""
        self.nursery = await self._start_nursery()
        try:
            with ownership.takeover_lock(self.folder / "lock"):
                self.database = Database.open(self.path, self.clock.now())
                try:
                    await self.nursery.guard(self.path)
                    self.ownership = ownership.take(self.database, self.clock)
                except BaseException:
                    await self.nursery.unguard()
                    self.database.close()
                    raise
        except BaseException:
            await self.nursery.stop()
            raise

    async def stop(self, farewell: Farewell = "stopped") -> None:
        """End all runners, park their runs, give the file back. A second call waits for the first.

        `farewell` is what clients hear: whether somebody stopped the server, or they may serve in its place.
        """
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        self.farewell = farewell
        self._wake.set()
        self.reconciling.wake()
        self.sessions.changed()
        self.listener.close_door()
        self.apart.end()
        for supervisor in list(self.supervisors.values()):
            if supervisor is not None:
                supervisor.stop("cancelled")
        self.reconciling.stop("cancelled")
        give_up = self.clock.monotonic() + 5
        while (self.supervisors or self.reconciling.passes) and self.clock.monotonic() < give_up:  # noqa: ASYNC110 - a dictionary that empties is no event
            await asyncio.sleep(0.01)
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self._restore_switch_interval()
        self.subscriptions.close()
        await self._give_back()
        self.listener.stop(self.farewell)
        self._stopped.set()

    async def _give_back(self) -> None:
        in_place = False
        try:
            self.committer.flush()
            self.database.require_in_place()
            in_place = True
            with self.database.transaction() as connection:
                server_row.release(connection, self.ownership)
        except PiWorkflowsError as error:
            log.warning("the file could not be given back cleanly; the next start will find this owner gone: %s", error)
        if in_place:
            await self.nursery.unguard()
            self.database.close()
        else:
            # With the locks held, SQLite does not remove a log by its name, which may be another file's by now.
            self.database.close()
            await self.nursery.unguard()
        ownership.ended(self.ownership)
        await self.nursery.stop()

    @property
    def stopping(self) -> bool:
        """Whether it takes leave."""
        return self._stopping

    def request_stop(self) -> None:
        """Stop, soon: for callers on the loop that cannot wait."""
        if not self._stopping:
            self.spawn_task(self.stop())

    async def wait_stopped(self) -> None:
        """Wait until `stop` is through."""
        await self._stopped.wait()

    def spawn_task(self, coroutine: Any) -> asyncio.Task[Any]:
        """Have something done that ends with this server."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the server failed", exc_info=task.exception())

    async def _start_nursery(self) -> Nursery:
        return await Nursery.start(
            preload=self.options.preload,
            on_lost=self._nursery_lost,
            stderr=self.folder / "nursery.log",
        )

    def _nursery_lost(self) -> None:
        if not self._owns:
            return  # `start` hears of it by what it waits for
        # Without the guard locks a foreign close of the file could delete the live WAL.
        self.committer.hold()
        if not self._stopping and not self._replacing:
            self._replacing = True
            self.spawn_task(self._replace_nursery())

    async def _replace_nursery(self) -> None:
        delay = 0.05
        while not self._stopping:
            try:
                self.nursery = await self._start_nursery()
                await self.nursery.guard(self.path)
            except (PiWorkflowsError, OSError):
                log.exception("the nursery could not be started again")
                await self.nursery.stop()
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5)
                continue
            self._replacing = False
            self.committer.go_on()
            self._wake.set()
            return

    def _ownership_lost(self, error: BaseException) -> None:
        log.error("this server does not own its file any more: %s", error)
        if not self._stopping:
            for supervisor in list(self.supervisors.values()):
                if supervisor is not None:
                    supervisor.kill("claimLost")
            self.reconciling.kill("claimLost")
            self.spawn_task(self.stop("lost"))

    # -- scheduling ---------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        while not self._stopping:
            self._wake.clear()
            while len(self.supervisors) < self.options.max_runners:
                run_id = self._ready.pop(set(self.supervisors))
                if run_id is None:
                    break
                self._launch(run_id)
            due = self._ready.next_due()
            delay = 1.0 if due is None or due <= 0 else min(1.0, due)
            try:
                await asyncio.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                pass

    def _clock_was_set(self) -> None:
        self._ready.load(self.database.connection)
        self._wake.set()

    def wake(self, run_id: str) -> None:
        """A run may have become claimable."""
        self.subscriptions.changed(self._ready.refresh(self.database.connection, run_id))
        self._wake.set()

    def _launch(self, run_id: str) -> None:
        self.supervisors[run_id] = None
        self.quicken()

        def done(launch: Launch | None, error: BaseException | None) -> None:
            if launch is None or self._stopping:
                del self.supervisors[run_id]
                if isinstance(error, StateUnavailableError):
                    asyncio.get_running_loop().call_later(0.5, self._retry_launch, run_id)
                elif error is not None and not isinstance(error, StaleClaimError):
                    log.error("run %s could not be claimed: %s", run_id, error)
                self._wake.set()
                return
            supervisor = WorkflowRunnerSupervisor(self, launch)
            self.supervisors[run_id] = supervisor
            self.spawn_task(supervisor.run())

        self.committer.submit_with(lambda transaction: self._claim(transaction, run_id), done)

    def _retry_launch(self, run_id: str) -> None:
        if not self._stopping:
            self.wake(run_id)

    def _claim(self, transaction: Transaction, run_id: str) -> Launch | None:
        connection, now = transaction.sql(), transaction.now
        transaction.changed.add(run_id)
        claim = transitions.claim_for_execution(
            connection, run_id, self.ownership.server_id, now, lease_ms=self.options.run_lease_ms
        )
        if claim is None:
            # The time for a decision may have been over, so that its default counts.
            for heir in runs.continuations_of(connection, run_id):
                transaction.changed.add(heir)
                self.environments.inherit(run_id, heir)
            return None
        frozen = runs.frozen_source(connection, run_id)
        fault = self._source_fault(frozen)
        if fault is not None:
            transitions.park_for_source_change(connection, runs.read(connection, run_id), fault, now)
            return None
        launch = launching.of_run(connection, run_id, claim, frozen)
        runners.record_launch(
            connection,
            launch.runner_epoch,
            run_id,
            claim,
            self.ownership.epoch,
            encode(launch.envelope),
            now,
        )
        return launch

    def _source_fault(self, frozen: bytes) -> str | None:
        """Why a stored source may not be loaded here, or None. Checked before any code is."""
        digest = identities.sha256_hex(frozen)
        if digest in self._verified:
            return None
        source = canonical_json.decode(frozen)
        if not sources.verify_mac(source, self.signing_key):
            return "the stored source was not made by this user on this machine; nothing of it was loaded"
        present = f"{sys.version_info.major}.{sys.version_info.minor}"
        if source["pickle"] is not None and source["python"] != present:
            return f"the workflow was made with Python {source['python']}, this server runs {present}: start it there"
        self._verified.add(digest)
        return None

    def supervisor_done(self, supervisor: WorkflowRunnerSupervisor) -> None:
        """A runner is gone and its end is recorded."""
        run_id = supervisor.launch.run_id
        if self.supervisors.get(run_id) is supervisor:
            del self.supervisors[run_id]
        if not self._stopping:
            self.wake(run_id)
            self.slow_down()

    def run_ended(self, run_id: str) -> None:
        """A run's end, or its wait for an answer, is on disk: its runner holds no place any more."""
        self.subscriptions.hurry(run_id)
        supervisor = self.supervisors.get(run_id)
        if supervisor is not None:
            asyncio.get_running_loop().call_later(2.0, self._end_lingering, supervisor)

    def _end_lingering(self, supervisor: WorkflowRunnerSupervisor) -> None:
        if self.supervisors.get(supervisor.launch.run_id) is supervisor:
            supervisor.stop("exited" if supervisor.progress.exiting else "cancelled")

    def quicken(self) -> None:
        """Let this thread run more often: there is work."""
        if self.options.in_kernel and self._switch_interval is None:
            self._switch_interval = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)

    def slow_down(self) -> None:
        """Undo that when nothing runs any more."""
        if not self.supervisors and not self.reconciling.passes:
            self._restore_switch_interval()

    def _restore_switch_interval(self) -> None:
        if self._switch_interval is not None:
            sys.setswitchinterval(self._switch_interval)
            self._switch_interval = None

    # -- whoever looks ------------------------------------------------------------------------------------------------

    def _changed(self, run_ids: set[str]) -> None:
        self.environments.forget_ended(self.database.connection, run_ids)
        for run_id in run_ids:
            if run_id not in self.supervisors:
                self.wake(run_id)
        self.subscriptions.changed(run_ids)
        self.child_runs.changed(run_ids)
        self.sessions.changed()

    def view(self, run_id: str) -> dict[str, Any] | None:
        """The live view of a run, or None where there is no such run."""
        return live_view(self.database.connection, run_id, self.clock.now(), has_agent=self.sessions.has_agent)

    def run_list(self, limit: int, project: str | None) -> list[dict[str, Any]]:
        """The newest runs as rows of a list, of the project in a folder or of the whole file."""
        project_id = None if project is None else identities.project_id(project)
        now = self.clock.now()
        return run_list(self.database.connection, limit, project_id, now, has_agent=self.sessions.has_agent)

    # -- what it tells of itself --------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Counts and times only: no ids, paths, prompts, outputs or tokens."""
        connection = self.database.connection
        counters = self.committer.counters
        return {
            "ambiguousEffects": connection.execute(
                "SELECT count(*) FROM effects WHERE status = 'ambiguous'"
            ).fetchone()[0],
            "clockJumpMs": self.drift.wall_jump(),
            "commits": counters.commits,
            "epoch": self.ownership.epoch,
            "fileInPlace": self.database.in_place(),
            "lagMs": round(self.lateness.now * 1000),
            "maxRunners": self.options.max_runners,
            "pid": os.getpid(),
            "queue": dict(connection.execute("SELECT status, count(*) FROM run_queue GROUP BY status")),
            "runners": len(self.supervisors),
            "runs": dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status")),
            "slowedByCell": self.options.in_kernel and self.lateness.now > LATE_SECONDS,
            "suspendedMs": self.drift.suspended(),
            "worstLagMs": round(self.lateness.worst(self.clock.monotonic()) * 1000),
        }
