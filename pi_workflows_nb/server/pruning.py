"""Letting old runs leave the file, beside everything else that a server does.

One tree is one transaction, in which it is judged once more; the blobs that nobody refers to any more go in
transactions of a bounded size, then the log and, where it is worth it, the file become smaller. In between the loop is
free. Killed at any moment, it leaves a file in which some have gone and the others have not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..state import blob_sweep, retention
from ..state.database import Database, open_read_only
from ..wire.errors import StateUnavailableError
from . import contents
from .committer import Committer

log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Trees that are looked at together, and leave before the next are looked at."""
FREE_BYTES: Final = 64 << 20
FREE_PART: Final = 0.2
LARGEST_BYTES: Final = 1 << 30
"""A file above that is vacuumed by hand only: it would block for longer than a lease."""
BUSY_MS: Final = 200


@dataclass
class Pruned:
    """What has left, and what has not, with the reasons and how many trees each has kept; sizes in bytes."""

    trees: int = 0
    runs: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    logs: int = 0
    kept: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """As a receipt says it."""
        return {
            "blobBytes": self.blob_bytes,
            "blobs": self.blobs,
            "kept": dict(sorted(self.kept.items())),
            "logs": self.logs,
            "runs": self.runs,
            "trees": self.trees,
        }


class Pruning:
    """Prunes one file through the committer of its owner; one call at a time."""

    def __init__(self, database: Database, committer: Committer, logs: Path, now: Callable[[], int]) -> None:
        self._database = database
        self._committer = committer
        self._logs = logs
        self._now = now
        self._one = asyncio.Lock()
        self._owed = True  # a sweep, since the last one may have been cut short by a death

    async def look(self, before: int) -> Pruned:
        """What would leave: trees that ended before a moment (ms since the epoch). Nothing is changed."""
        found = Pruned()
        position = 0
        with closing(await asyncio.to_thread(self._reader)) as reader:
            tangled = await asyncio.to_thread(retention.tangled, reader)
            while listed := await asyncio.to_thread(self._candidates, reader, before, position, tangled):
                for _, tree in listed:
                    if tree.kept_by is None:
                        found.trees += 1
                        found.runs += len(tree.runs)
                    else:
                        found.kept[tree.kept_by] += 1
                position = listed[-1][0]
        return found

    async def prune(self, before: int, go_on: Callable[[], bool] = lambda: True, *, by_hand: bool = False) -> Pruned:
        """Let them leave, with their blobs and logs, as long as `go_on` says so. `StateUnavailableError`.

        Dead blobs are looked for when something has left, or by hand.
        """
        async with self._one:
            pruned = Pruned()
            if await self._trees(before, pruned, go_on) and (self._owed or by_hand):
                await self._sweep(pruned, go_on)
                await self._sweep_logs(before, pruned)
                self._owed = not go_on()
            return pruned

    async def by_hand(self, before: int, made: dict[str, Any]) -> dict[str, Any]:
        """Prune after a verified backup was made, give the room back, and say all of it as a receipt does."""
        was = self.sizes()
        pruned = await self.prune(before, by_hand=True)
        vacuumed = self.shrink(by_hand=True)
        return {
            "applied": True,
            "backup": made,
            "bytesAfter": self.sizes(),
            "bytesBefore": was,
            "vacuumed": vacuumed,
            **pruned.to_json(),
        }

    def _reader(self) -> sqlite3.Connection:
        return open_read_only(self._database.path, live=True)

    def _candidates(
        self, reader: sqlite3.Connection, before: int, after: int, tangled: frozenset[str]
    ) -> list[tuple[int, retention.Tree]]:
        reader.execute("BEGIN")
        try:
            return retention.candidates(reader, before, after, AT_ONCE, tangled, self._now())
        finally:
            reader.execute("ROLLBACK")

    async def _trees(self, before: int, pruned: Pruned, go_on: Callable[[], bool]) -> bool:
        position = 0
        with closing(await asyncio.to_thread(self._reader)) as reader:
            tangled = await asyncio.to_thread(retention.tangled, reader)
            while listed := await asyncio.to_thread(self._candidates, reader, before, position, tangled):
                for _, tree in listed:
                    if not go_on():
                        return False
                    if tree.kept_by is not None:
                        pruned.kept[tree.kept_by] += 1
                        continue
                    self._tree(tree.root, before, pruned)
                    await asyncio.sleep(0)
                position = listed[-1][0]
                self._database.checkpoint()
        return True

    def _tree(self, root: str, before: int, pruned: Pruned) -> None:
        gone = self._committer.alone(
            lambda transaction: retention.delete(transaction.sql(), root, before, transaction.now)
        )
        if gone is None:
            pruned.kept["a change since it was looked at"] += 1
            return
        self._owed = True
        pruned.trees += 1
        pruned.runs += gone.runs
        for attempt_id in gone.attempts:
            pruned.logs += _removed(self._logs / f"{attempt_id}.log")

    async def _sweep(self, pruned: Pruned, go_on: Callable[[], bool]) -> None:
        connection = self._database.connection
        self._committer.alone(lambda transaction: retention.delete_definitions(transaction.sql()))
        blob_sweep.watch(connection)
        try:
            with closing(await asyncio.to_thread(blob_sweep.Dead, self._database.path)) as dead:
                position = 0
                while go_on():
                    position, digests = dead.after(position)
                    if not digests:
                        break
                    self._blobs(digests, pruned)
                    await asyncio.sleep(0)
        finally:
            with contextlib.suppress(sqlite3.ProgrammingError):  # the file is given back already
                blob_sweep.unwatch(connection)

    def _blobs(self, digests: list[bytes], pruned: Pruned) -> None:
        spared = contents.held()
        count, size = self._committer.alone(lambda transaction: blob_sweep.delete(transaction.sql(), digests, spared))
        pruned.blobs += count
        pruned.blob_bytes += size

    async def _sweep_logs(self, before: int, pruned: Pruned) -> None:
        """Logs of attempts that left before a death could remove them."""
        old: list[str] = []
        with contextlib.suppress(OSError), os.scandir(self._logs) as entries:
            for entry in entries:
                if entry.name.endswith(".log") and not entry.name.startswith("resource-"):
                    with contextlib.suppress(OSError):
                        if entry.stat().st_mtime * 1000 < before:
                            old.append(entry.name.removesuffix(".log"))
        for start in range(0, len(old), AT_ONCE):
            for name in retention.without_row(self._database.connection, old[start : start + AT_ONCE]):
                pruned.logs += _removed(self._logs / f"{name}.log")
            await asyncio.sleep(0)

    def sizes(self) -> dict[str, int]:
        """The bytes of the file and of its log."""
        return {"file": _size(self._database.path), "log": _size(Path(f"{self._database.path}-wal"))}

    def shrink(self, *, by_hand: bool) -> bool:
        """Give what is free back to the disk: the log always, the file where it is worth it. Whether it was the file.

        By itself the file must be below 1 GiB and have 64 MiB and a fifth free, by hand a fifth.
        """
        connection = self._database.connection
        self._committer.alone(lambda _: None)  # whoever does not own the file any more hears of it here
        vacuumed = self._worth_it(by_hand=by_hand)
        try:
            if vacuumed:
                connection.execute("VACUUM")
            # A reader that stays is not waited for: the log is cut the next time.
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            log.warning("the file could not be made smaller: %s", error)
            return False
        finally:
            connection.execute("PRAGMA busy_timeout = 5000")
        return vacuumed

    def _worth_it(self, *, by_hand: bool) -> bool:
        connection = self._database.connection
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        if free < FREE_PART * pages:
            return False
        return by_hand or (free * size >= FREE_BYTES and pages * size < LARGEST_BYTES)


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StateUnavailableError(f"{path} could not be removed ({error.strerror})") from error
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
