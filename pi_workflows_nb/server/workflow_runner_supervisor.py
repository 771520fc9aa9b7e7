"""The runner of one generation of one run: what it is started with, what its words are for, what its end means.

Its life is that of any child (`child_runner_supervisor`). It can only propose (`proposals`), and what its exit means
for the run is one transition.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Final

from ..state import mutation, run_effects, runners, runs, transitions
from ..state.runners import RunnerOutcome
from ..wire.errors import PiWorkflowsError, StaleClaimError, StateUnavailableError
from ..wire.runner_messages import COMMAND_SCHEMA, Finished, RunnerCommand, Snapshot, encode
from . import contents, logs, runner_exit
from .child_runner_supervisor import ChildEnd, ChildRunnerSupervisor, ChildSpec
from .committer import Transaction
from .contents import Transfers
from .launch import Launch, Progress
from .proposals import Proposals, Voice

if TYPE_CHECKING:
    from .server import WorkflowServer

STOPPED_PART: Final = 0.25
"""Of its claim's time, from which on a process that was stopped at its end is held to have stopped by itself."""


class WorkflowRunnerSupervisor:
    """Starts, hears and ends the runner of one generation of one run."""

    def __init__(self, server: WorkflowServer, launch: Launch) -> None:
        self.server = server
        self.launch = launch
        self.claim = launch.claim
        self.progress = Progress(cancel_interrupted=launch.command == "resume")
        self.log_path = server.logs / f"{launch.runner_epoch}.log"
        self._transfers = Transfers(server.transfers, launch.runner_epoch)
        spec = ChildSpec(
            label=f"runner of {launch.run_id}",
            mode="run",
            epoch=launch.runner_epoch,
            envelope=encode(launch.envelope),
            environment=server.environments.of(launch.run_id),
            folder=launch.project_path,
            log=self.log_path,
        )
        self._life = ChildRunnerSupervisor(server, spec, self._on_frame, self.progress.diagnostics)
        self._proposals = Proposals(
            server,
            launch,
            self.progress,
            self._transfers,
            server.processes,
            Voice(
                send=self._life.send,
                hold=self._life.hold,
                end=self._end,
                ready=self._life.said_ready,
                running=self._record_running,
            ),
        )
        self._stopped_since: float | None = None
        self._loading_until: float | None = None

    # -- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From fork to exit. Never raises: whatever happens is recorded as the runner's outcome."""
        end = await self._life.live(self._command)
        if self.progress.exiting is None:
            # What was heard last is stored, or refused, before the end is judged.
            with contextlib.suppress(PiWorkflowsError):
                await self.server.committer.submit(lambda _: None)
        await self._finish(end)

    def stop(self, outcome: RunnerOutcome) -> None:
        """End the runner's group: SIGTERM, 2 s, SIGKILL. It was fenced before, or will be by what its exit means."""
        self._life.stop(outcome)

    def kill(self, outcome: RunnerOutcome) -> None:
        """End the runner's group at once."""
        self._life.kill(outcome)

    def _command(self) -> None:
        launch = self.launch
        self._loading_until = self._active_time() + self.server.options.loading_seconds
        self._life.send(
            encode(
                RunnerCommand(
                    command=launch.command,  # type: ignore[arg-type]
                    parent_run_id=launch.parent_run_id,
                    schema=COMMAND_SCHEMA,
                    source=contents.offered(launch.source),
                    window=self.server.run_ahead,
                )
            )
        )

    def _on_frame(self, line: bytes) -> None:
        self._proposals.on_frame(line)
        if self.progress.exiting is not None:
            self._life.said_exiting()

    def _end(self, outcome: RunnerOutcome, at_once: bool) -> None:
        if at_once:
            self.kill(outcome)
        else:
            self.stop(outcome)

    async def _finish(self, end: ChildEnd) -> None:
        launch, progress = self.launch, self.progress
        logs.attribute(self.log_path, progress.attempts)
        self._transfers.close()
        cause = runner_exit.cause_of(end.status, end.spawned, progress)

        def exited(transaction: Transaction) -> None:
            connection, now = transaction.sql(), transaction.now
            runners.record_exit(
                connection, launch.runner_epoch, end.outcome, end.exit_code, end.signal_name, end.diagnostic, now
            )
            run = runs.find(connection, launch.run_id)
            if run is None:
                return
            transaction.changed.add(launch.run_id)
            if run.status != "running" or run.generation != self.claim.generation or run.owner_id is None:
                return
            runner_exit.park_after_exit(connection, run, progress, end.outcome, cause, now)

        while True:
            try:
                await self.server.committer.submit(exited)
            except StateUnavailableError:
                await asyncio.sleep(0.5)
            except StaleClaimError:
                break
            else:
                break
        self.server.supervisor_done(self)

    def _record_running(self, transaction: Transaction) -> None:
        """Rides with the runner's first question, which comes a moment after it is ready: one commit less for each."""
        child, launch = self._life.child, self.launch
        assert child is not None
        connection = transaction.sql()
        transitions.mark_running(connection, launch.run_id, self.claim, transaction.now)
        runners.record_ready(connection, launch.runner_epoch, child.pid, child.identity, transaction.now)
        transaction.changed.add(launch.run_id)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _active_time(self) -> float:
        return self.server.lateness.active(self.server.clock.monotonic())

    def renew(self, connection: sqlite3.Connection, now: int) -> None:
        """Prolong the claim, inside a transaction; a claim that is not the live one any more is left alone."""
        with contextlib.suppress(StaleClaimError):
            mutation.renew_lease(connection, self.claim, now)

    def expires_at(self) -> int:
        """When the claim ends (ms): 0 when it is another's."""
        row = self.server.database.connection.execute(
            "SELECT expires_at FROM leases WHERE resource_id = ? AND generation = ?",
            (self.claim.resource_id, self.claim.generation),
        ).fetchone()
        return row[0] or 0 if row else 0

    def stopped_by_signal(self) -> bool:
        """Whether the runner's process is stopped (state T): its claim is left to expire. Asked at every tick."""
        if not self.server.processes.is_stopped(self.launch.runner_epoch):
            self._stopped_since = None
            return False
        if self._stopped_since is None:
            self._stopped_since = self._active_time()
        return True

    def expired(self) -> None:
        """End the runner, which has no claim any more.

        Time in which this server was held up, too, is no fault of the run: a lid was closed.
        """
        if self._stopped_since is not None:
            stopped = self._active_time() - self._stopped_since
            self.progress.stopped = stopped >= self.claim.lease_ms / 1000 * STOPPED_PART
        self.kill("claimLost")

    def overdue(self) -> bool:
        """Whether the active node's deadline passed so long ago that its runner will not say so any more."""
        until = self.progress.active_until
        if self.progress.active is None or until is None:
            return False
        return self._active_time() > until + self.server.options.overdue_seconds

    def loads_for_too_long(self) -> bool:
        """Whether the source, whose code may do anything, has still not been loaded."""
        until = self._loading_until
        return until is not None and not self.progress.begun and self._active_time() > until

    def give_up_loading(self) -> None:
        """End the runner; it counts as a crash."""
        self._loading_until = None
        self.progress.diagnostics.add(f"its source was not loaded within {self.server.options.loading_seconds:g} s")
        self.kill("crashed")

    def give_up_node(self) -> None:
        """Commit the timeout that the runner cannot propose, and end it; a new generation goes on from there."""
        active = self.progress.active
        if active is None or self._life.outcome is not None:
            return
        run_id, claim = self.launch.run_id, self.claim

        error = f"node {active.node_id} ran past its deadline and could not be stopped; its process was ended"

        def time_out(transaction: Transaction) -> None:
            steps = transaction.steps
            cursor = steps.cursor(run_id, claim)
            finished = Finished(
                attempt_id=active.attempt_id,
                effect=None,
                error=error,
                finished_at=transaction.now,
                node_id=active.node_id,
                outcome="timed_out",
                output=None,
                step=not active.retry_on_timeout,
            )
            snapshot = Snapshot(abandoned=True, end=None, finished=finished, started=None)
            steps.apply(run_id, claim, cursor.revision, snapshot, None, None)
            connection = transaction.sql()
            run_effects.give_up(
                connection,
                runs.read(connection, run_id),
                again=active.retry_on_timeout,
                error=error,
                now=transaction.now,
            )
            transaction.changed.add(run_id)

        def done(_: None, failure: BaseException | None) -> None:
            if failure is None:
                self.progress.active = None
                self.progress.abandoned = True
                self.progress.boundaries += 1
                self.kill("timedOut")

        self.server.committer.submit_with(time_out, done)
