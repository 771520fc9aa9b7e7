"""One runner's life as the server sees it: launch, handshake, renewal, deadline, exit.

The runner can only propose (`proposals`). Its exit is its wait status, never the end of its stream, and what the exit
means for the run is one transition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from ..state import mutation, run_effects, runners, runs, transitions
from ..state.runners import RunnerOutcome
from ..wire.errors import PiWorkflowsError, ProtocolError, StaleClaimError, StateUnavailableError
from ..wire.runner_messages import COMMAND_SCHEMA, Finished, RunnerCommand, Snapshot, encode
from . import logs, processes, runner_exit
from .channel import FrameChannel
from .committer import Transaction
from .contents import Transfers
from .launch import Launch, Progress
from .proposals import Proposals

if TYPE_CHECKING:
    from .nursery import Child
    from .server import WorkflowServer

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 15.0
STOPPED_TICKS: Final = 2
LAST_WORDS_SECONDS: Final = 1.0


class WorkflowRunnerSupervisor:
    """Starts, hears and ends the runner of one generation of one run."""

    def __init__(self, server: WorkflowServer, launch: Launch) -> None:
        self.server = server
        self.launch = launch
        self.claim = launch.claim
        self.progress = Progress(cancel_interrupted=launch.command == "resume")
        self.outcome: RunnerOutcome | None = None
        self.child: Child | None = None
        self.log_path = server.logs / f"{launch.runner_epoch}.log"
        self._channel: FrameChannel | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transfers = Transfers(server.transfers, launch.runner_epoch)
        self._proposals = Proposals(
            server,
            launch,
            self.progress,
            self._transfers,
            send=self._send,
            on_ready=self._said_ready,
            on_first_question=self._record_running,
            end=self._end,
        )
        self._stopping: asyncio.Task[int | None] | None = None
        self._ticks_stopped = 0
        self._closed = asyncio.Event()

    # -- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From fork to exit. Never raises: whatever happens is recorded as the runner's outcome."""
        try:
            await self._start()
        except (TimeoutError, PiWorkflowsError, OSError) as error:
            self.progress.diagnostics.append(str(error) or "the runner did not answer within 15 s of its start")
            if self.child is None:
                await self._finish(None, spawned=False)
                return
            self.stop("crashed")
        assert self.child is not None
        status = await self.child.exited
        if self._stopping is not None:
            await self._stopping
        await self._hear_out()
        if self._channel is not None:
            self._channel.close()
        await self._finish(status, spawned=True)

    async def _hear_out(self) -> None:
        """What the runner wrote before it ended is read, and stored or refused, before its end is judged."""
        if self._channel is None or self.progress.exiting is not None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), LAST_WORDS_SECONDS)
        with contextlib.suppress(PiWorkflowsError):
            await self.server.committer.submit(lambda _: None)

    async def _start(self) -> None:
        server, launch = self.server, self.launch
        self.child = await server.nursery.spawn(
            mode="run",
            environment=server.environments.get(launch.run_id),
            folder=launch.project_path,
            log=self.log_path,
            epoch=launch.runner_epoch,
        )
        self._channel = FrameChannel(self._proposals.on_frames, self._on_closed)
        channel = self._channel
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=self.child.socket)
        channel.send(encode(launch.envelope))
        if not await self._is_ready():
            return
        channel.send(
            encode(
                RunnerCommand(
                    command=launch.command,  # type: ignore[arg-type]
                    parent_run_id=launch.parent_run_id,
                    schema=COMMAND_SCHEMA,
                    source=self._transfers.offer(launch.source),
                    window=server.run_ahead,
                )
            )
        )

    async def _is_ready(self) -> bool:
        """Wait for the runner's first word; False when it ended without one, `TimeoutError` when it stays silent."""
        assert self.child is not None
        heard: tuple[asyncio.Future[Any], ...] = (self._ready, self.child.exited)
        await asyncio.wait(heard, timeout=HANDSHAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done() and not self.child.exited.done():
            raise TimeoutError
        return self._ready.done()

    def stop(self, outcome: RunnerOutcome) -> None:
        """End the runner's group: SIGTERM, 2 s, SIGKILL. It was fenced before, or will be by what its exit means."""
        if self.outcome is None:
            self.outcome = outcome
        if self._stopping is None and self.child is not None:
            self._stopping = asyncio.get_running_loop().create_task(self.child.stop())

    def kill(self, outcome: RunnerOutcome) -> None:
        """End the runner's group at once."""
        if self.outcome is None:
            self.outcome = outcome
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    async def _finish(self, status: int | None, *, spawned: bool) -> None:
        launch, progress = self.launch, self.progress
        outcome: RunnerOutcome
        if self.outcome is not None:
            outcome = self.outcome
        elif status == 0 and progress.exiting is not None:
            outcome = "exited"
        else:
            outcome = "crashed"
        signal_name = signal.Signals(-status).name if status is not None and status < 0 else None
        code = status if status is not None and status >= 0 else None
        tail = logs.tail(self.log_path, runners.DIAGNOSTIC_BYTES) if outcome == "crashed" else ""
        diagnostic = "\n".join([*progress.diagnostics, tail]).strip()
        logs.attribute(self.log_path, progress.last_attempt)
        self._transfers.close()
        cause = runner_exit.cause_of(status, spawned, progress)

        def exited(transaction: Transaction) -> None:
            connection, now = transaction.sql(), transaction.now
            runners.record_exit(connection, launch.runner_epoch, outcome, code, signal_name, diagnostic, now)
            run = runs.find(connection, launch.run_id)
            if run is None:
                return
            transaction.changed.add(launch.run_id)
            if run.status != "running" or run.generation != self.claim.generation or run.owner_id is None:
                return
            runner_exit.park_after_exit(connection, run, progress, outcome, cause, now)

        while True:
            try:
                await self.server.committer.submit(exited)
            except StateUnavailableError:
                await asyncio.sleep(0.5)
            except StaleClaimError:
                break
            else:
                break
        if not self._ready.done():
            self._ready.cancel()
        self.server.supervisor_done(self)

    def _send(self, frame: bytes) -> None:
        if self._channel is not None:
            self._channel.send(frame)

    def _record_running(self, transaction: Transaction) -> None:
        """Rides with the runner's first question, which comes a moment after it is ready: one commit less for each."""
        child, launch = self.child, self.launch
        assert child is not None
        connection = transaction.sql()
        transitions.mark_running(connection, launch.run_id, self.claim, transaction.now)
        runners.record_ready(connection, launch.runner_epoch, child.pid, child.identity, transaction.now)
        transaction.changed.add(launch.run_id)

    def _said_ready(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _end(self, outcome: RunnerOutcome, at_once: bool) -> None:
        if at_once:
            self.kill(outcome)
        else:
            self.stop(outcome)

    def _on_closed(self, error: Exception | None) -> None:
        self._closed.set()
        if isinstance(error, ProtocolError):
            self._proposals.refuse_stream(str(error))

    # -- time ---------------------------------------------------------------------------------------------------------

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

    def stopped_by_signal(self, *, notice: bool) -> bool:
        """Whether the runner's process is stopped (state T): its claim is left to expire.

        Asked at every tick; whether it was stopped at the last ones is remembered where `notice` says so.
        """
        stopped = self.child is not None and processes.is_stopped(self.child.pid)
        self._ticks_stopped = self._ticks_stopped + 1 if stopped and notice else 0
        return stopped

    def expired(self) -> None:
        """End the runner, which has no claim any more."""
        self.progress.stopped = self._ticks_stopped >= STOPPED_TICKS
        self.kill("claimLost")

    def overdue(self, now: int) -> bool:
        """Whether the active node's deadline passed so long ago that its runner will not say so any more."""
        active = self.progress.active
        return (
            active is not None
            and active.deadline_at is not None
            and now > active.deadline_at + self.server.options.overdue_seconds * 1000
        )

    def give_up_node(self) -> None:
        """Commit the timeout that the runner cannot propose, and end it; a new generation goes on from there."""
        active = self.progress.active
        if active is None or self.outcome is not None:
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
