"""Faults that are planted into the server of a trial's kernel, to see that the checks find them.

A kernel imports this before it starts its server. Nothing in the package knows of it: methods are replaced.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

WORDS: Final = Path("late-words")
"""In the folder of a trial: what became of each outcome that arrived late."""

_planted: set[str] = set()


def plant(name: str) -> None:
    """Put a fault in place; a second time does nothing."""
    if name not in _planted:
        _planted.add(name)
        (FAULTS | HARMLESS)[name]()


def late_words() -> None:
    """Not a fault: a runner dies right after it has told an outcome, which arrives when its successor is at work.

    Whoever fences refuses it.
    """
    from pi_workflows_nb.server.proposals import Proposals

    told = Proposals._on_snapshot
    held: list[tuple[Any, Any]] = []
    wait = [random.randrange(1, 12)]

    def deliver(successor: Any, proposals: Any, snapshot: Any) -> None:
        launch = proposals._launch

        def apply(transaction: Any) -> None:
            steps = transaction.steps
            revision = steps.cursor(launch.run_id, launch.claim).revision
            steps.apply(launch.run_id, launch.claim, revision, snapshot, None, None)

        def done(_: Any, error: BaseException | None) -> None:
            with WORDS.open("a") as file:
                file.write("accepted\n" if error is None else f"refused: {type(error).__name__}\n")

        successor._server.committer.submit_with(apply, done)

    def on_snapshot(self: Any, message: Any, line: bytes) -> None:
        from pi_workflows_nb.server import proposals

        snapshot = proposals._snapshot(message.payload)
        finished = snapshot.finished
        wait[0] -= 1
        if held and held[0][0] is not self:
            told(self, message, line)
            if wait[0] <= 0:
                deliver(self, *held.pop())
                wait[0] = random.randrange(3, 12)
        elif held:
            return
        elif wait[0] <= 0 and finished is not None and finished.effect is None and snapshot.end is None:
            alone = type(snapshot)(abandoned=False, end=None, finished=_without_output(finished), started=None)
            held.append((self, alone))
            wait[0] = random.randrange(2, 6)
            self._end("crashed", True)
        else:
            told(self, message, line)

    Proposals._on_snapshot = on_snapshot


def _without_output(finished: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(finished, output=None)


def fence_skipped() -> None:
    """What a runner says counts though another has taken over: neither claim nor active attempt is compared."""
    from pi_workflows_nb.state import mutation, steps

    late_words()
    check = steps._check
    mutation.compare_lease = lambda *_, **__: None

    def lenient(cursor: Any, expected: int, finished: Any, started: Any) -> None:
        stale = finished is not None and started is None and finished.attempt_id != cursor.attempt_id
        check(cursor, expected, None if stale else finished, started)

    steps._check = lenient


def answered_before_commit() -> None:
    """Everybody hears of a result a moment before it is on disk."""
    from pi_workflows_nb.server.committer import Committer

    run = Committer._run

    def told_early(self: Any, members: list[Any]) -> Any:
        values: list[tuple[Any, Any]] = []
        for member in members:
            member.operation = _remembering(member, member.operation, values)
        begin = self._database.transaction
        self._database.transaction = lambda: _Late(begin(), values)
        try:
            return run(self, members)
        finally:
            del self._database.transaction

    Committer._run = told_early


def _remembering(member: Any, operation: Callable[[Any], Any], values: list[tuple[Any, Any]]) -> Callable[[Any], Any]:
    def operate(transaction: Any) -> Any:
        value = operation(transaction)
        values.append((member, value))
        return value

    return operate


class _Late:
    """A transaction that commits after its results were told."""

    def __init__(self, transaction: Any, values: list[tuple[Any, Any]]) -> None:
        self._transaction = transaction
        self._values = values

    def __enter__(self) -> Any:
        return self._transaction.__enter__()

    def __exit__(self, kind: object, error: object, traceback: object) -> Any:
        if kind is None:
            for member, value in self._values:
                done, member.done = member.done, lambda *_: None
                done(value, None)
            time.sleep(0.01)
        return self._transaction.__exit__(kind, error, traceback)


def blob_dropped() -> None:
    """Once in a while a value that a step refers to is swept away."""
    from pi_workflows_nb.server.committer import Committer

    run = Committer._run

    def sweeping(self: Any, members: list[Any]) -> Any:
        result = run(self, members)
        if random.random() < 0.05:
            connection = self._database.connection
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(
                "DELETE FROM blobs WHERE blob_hash = (SELECT output_hash FROM node_attempts"
                " WHERE status = 'completed' ORDER BY random() LIMIT 1)"
            )
            connection.execute("PRAGMA foreign_keys = ON")
        return result

    Committer._run = sweeping


def generation_reused() -> None:
    """A new claim gets the generation of the one before it."""
    from pi_workflows_nb.state import mutation

    claim_lease = mutation.claim_lease

    def claim(connection: Any, resource_id: str, *given: Any, **named: Any) -> Any:
        claimed = claim_lease(connection, resource_id, *given, **named)
        if claimed is None or claimed.generation == 1:
            return claimed
        connection.execute("UPDATE leases SET generation = generation - 1 WHERE resource_id = ?", (resource_id,))
        return dataclasses.replace(claimed, generation=claimed.generation - 1)

    mutation.claim_lease = claim


def event_missing() -> None:
    """Once in a while a change leaves no event."""
    from pi_workflows_nb.state.steps import StepBatch

    flush = StepBatch.flush

    def forgetful(self: Any) -> None:
        if self._events and random.random() < 0.05:
            self._events.pop(random.randrange(len(self._events)))
        flush(self)

    StepBatch.flush = forgetful


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "fence skipped": fence_skipped,
    "answered before commit": answered_before_commit,
    "blob dropped": blob_dropped,
    "generation reused": generation_reused,
    "event missing": event_missing,
}
HARMLESS: Final[dict[str, Callable[[], None]]] = {"late words, fence held": late_words}
