"""Group commit: operations that wait at the same moment share one transaction and one fsync.

An operation is a function of the transaction. Operations run in the order in which they were submitted. One that
refuses (an error of this project's tree) has checked before it wrote, so the others go on. On any other surprise the
whole group is rolled back and its members run one by one; a commit that fails fails every member with the same
retryable error.
Nobody hears of a result before it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..state import clock_set, server_row
from ..state.database import Database
from ..state.steps import StepBatch
from ..wire.errors import PiWorkflowsError, ProtocolError, StaleClaimError, StateUnavailableError
from .clock import Clock

T = TypeVar("T")
log = logging.getLogger(__name__)


class Transaction:
    """What an operation works with: the connection, the time, and the batch of the hot path."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self.steps = StepBatch(connection, now)
        self.changed: set[str] = set()

    def sql(self) -> sqlite3.Connection:
        """The connection, with everything collected so far written: for statements of any other kind."""
        self.steps.flush()
        return self.connection


@dataclass(slots=True)
class _Member(Generic[T]):
    operation: Callable[[Transaction], T]
    done: Callable[[T | None, BaseException | None], None]


@dataclass(slots=True)
class _Outcome:
    value: Any = None
    error: BaseException | None = None


@dataclass
class Counters:
    """What the committer has done, for the panel and the benchmarks."""

    commits: int = 0
    operations: int = 0
    regrouped: int = 0
    failed: int = 0


class Committer:
    """The queue before the one writing connection. Used on the server's loop only."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ownership: server_row.Ownership,
        on_changed: Callable[[set[str]], None],
        on_lost: Callable[[BaseException], None],
        on_flushed: Callable[[], None] = lambda: None,
        on_jump: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ownership = ownership
        self._on_changed = on_changed
        self._on_lost = on_lost
        self._on_flushed = on_flushed
        self._on_jump = on_jump
        self._waiting: list[_Member[Any]] = []
        self._scheduled = False
        self._held = False
        self.counters = Counters()
        self._loop = asyncio.get_running_loop()

    def submit_with(
        self, operation: Callable[[Transaction], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Queue an operation; `done` is called with its result or error once that is durable."""
        self._waiting.append(_Member(operation, done))
        if not self._scheduled and not self._held:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def submit(self, operation: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Queue an operation and give a future of its result."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(value: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(value)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

        self.submit_with(operation, done)
        return future

    def alone(self, operation: Callable[[Transaction], T]) -> T:
        """Do an operation at once, in a transaction of its own in which SQLite checks no references: for deletions.

        The operation answers for the references. Errors are its own, `StateUnavailableError`, or `StaleClaimError`
        when the file is another server's.
        """
        self.flush()
        if self._held:
            raise StateUnavailableError("the server commits nothing just now; the same call may succeed in a moment")
        self._database.connection.execute("PRAGMA foreign_keys = OFF")
        try:
            (outcome,), _ = self._run([_Member(operation, lambda _, __: None)])
        except StaleClaimError as error:
            self._on_lost(error)
            raise
        finally:
            self._database.connection.execute("PRAGMA foreign_keys = ON")
        if outcome.error is not None:
            raise outcome.error
        value: T = outcome.value
        return value

    def hold(self) -> None:
        """Commit nothing until `go_on`: the guard locks are not held."""
        self._held = True

    def go_on(self) -> None:
        """Commit again."""
        self._held = False
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Run what waits, in one transaction if it can be."""
        self._scheduled = False
        if self._held or not self._waiting:
            return
        members, self._waiting = self._waiting, []
        try:
            outcomes, changed = self._run(members)
        except PiWorkflowsError as error:
            if isinstance(error, StateUnavailableError):
                self.counters.failed += 1
                outcomes, changed = [_Outcome(error=error)] * len(members), set()
            else:
                # The only such error outside an operation: the epoch is another server's.
                outcomes, changed = [_Outcome(error=error)] * len(members), set()
                self._on_lost(error)
        except Exception:
            log.info("a group of %d operations is run one by one", len(members), exc_info=True)
            self.counters.regrouped += 1
            outcomes, changed = self._run_one_by_one(members)
        self.counters.operations += len(members)
        for member, outcome in zip(members, outcomes, strict=True):
            member.done(outcome.value, outcome.error)
        if changed:
            self._on_changed(changed)
        self._on_flushed()

    def _run(self, members: list[_Member[Any]]) -> tuple[list[_Outcome], set[str]]:
        outcomes: list[_Outcome] = []
        self._database.require_in_place()
        with self._database.transaction() as connection:
            server_row.check(connection, self._ownership)
            jump = self._clock.jump()
            if jump is not None:
                log.info("the machine's clock was set by %d ms", jump.by)
                clock_set.move(connection, jump.by, jump.asleep)
            transaction = Transaction(connection, self._clock.now() + (jump.by if jump is not None else 0))
            for member in members:
                outcome = _Outcome()
                try:
                    outcome.value = member.operation(transaction)
                except StateUnavailableError:
                    raise
                except PiWorkflowsError as error:
                    outcome.error = error
                outcomes.append(outcome)
            transaction.steps.flush()
        if jump is not None:
            self._clock.follow(jump)
            self._on_jump()
        self.counters.commits += 1
        self._database.secure()
        return outcomes, transaction.changed

    def _run_one_by_one(self, members: list[_Member[Any]]) -> tuple[list[_Outcome], set[str]]:
        outcomes: list[_Outcome] = []
        changed: set[str] = set()
        for member in members:
            try:
                one, its = self._run([member])
            except StateUnavailableError as error:
                outcomes.append(_Outcome(error=error))
            except PiWorkflowsError as error:
                outcomes.append(_Outcome(error=error))
                self._on_lost(error)
            except sqlite3.IntegrityError as error:
                outcomes.append(_Outcome(error=ProtocolError(f"the change does not fit what is stored: {error}")))
            except Exception as error:
                log.exception("an operation failed")
                outcomes.append(_Outcome(error=error))
            else:
                outcomes.extend(one)
                changed |= its
        return outcomes, changed
