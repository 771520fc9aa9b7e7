"""`pi-workflows-nb state …`: what a state file holds, whether it is sound, its copies, and letting old runs leave.

Where a server lives it does the work, beside its runs. Where nobody serves, this process does, and to prune it becomes
the owner of the file for that while, as a server would.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..server import ownership
from ..server.clock import SystemClock
from ..server.committer import Committer
from ..server.pruning import Pruning
from ..state import admission, backup, server_row
from ..state.database import Database
from ..state.verify import verify
from ..wire.errors import StateFileError
from . import asking

MOST_FINDINGS: Final = 200
_COUNTED: Final = ("runs", "node_attempts", "events", "effects", "controller_resources", "blobs")


def status(path: Path) -> dict[str, Any]:
    """Counts and sizes of a file, live or at rest; no ids, paths, prompts or outputs."""
    with closing(asking.open_file(path)) as file:
        file.execute("BEGIN")
        pages, free, size = (
            file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        counts = {name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in _COUNTED}
        owner = server_row.owner(file)
        return {
            "bytes": pages * size,
            "freeBytes": free * size,
            "logBytes": _size(Path(f"{path}-wal")),
            "attempts": counts.pop("node_attempts"),
            "managedResources": counts.pop("controller_resources"),
            **{name: count for name, count in counts.items() if name != "runs"},
            "runs": dict(file.execute("SELECT status, count(*) FROM runs GROUP BY status")),
            "queue": dict(file.execute("SELECT status, count(*) FROM run_queue GROUP BY status")),
            "oldestRunAt": file.execute("SELECT min(created_at) FROM runs").fetchone()[0],
            "newestRunAt": file.execute("SELECT max(created_at) FROM runs").fetchone()[0],
            "madeHere": admission.made_here(file),
            "epoch": file.execute("SELECT epoch FROM workflow_host_state WHERE id = 1").fetchone()[0],
            "owned": owner is not None,
        }


def check(path: Path, inactive: Path | None) -> dict[str, Any]:
    """What is wrong with the active file at `path`, or with another one, which is opened to be read.

    `StateFileError` when the other one is the active one under some name.
    """
    if inactive is not None:
        real = admission.resolve(inactive)
        if real == path or (real.exists() and path.exists() and real.samefile(path)):
            raise StateFileError(f"{inactive} leads to the active file: `state verify` without a path checks that one")
        return _checked(real)
    connection = asking.find(path)
    if connection is None:
        return _checked(path)
    with closing(connection):
        return asking.receipt(connection.request("state.verify", {}))


def _checked(path: Path) -> dict[str, Any]:
    with closing(asking.open_file(path)) as file:
        found = verify(file)
    return {
        "errors": sum(finding.severity == "error" for finding in found),
        "findings": [dataclasses.asdict(finding) for finding in found[:MOST_FINDINGS]],
        "warnings": sum(finding.severity == "warning" for finding in found),
    }


def copy(path: Path, destination: Path) -> dict[str, Any]:
    """Copy the active file, and check the copy."""
    where = os.path.abspath(destination)
    connection = asking.find(path)
    if connection is None:
        asking.open_file(path).close()
        return backup.make(path, where)
    with closing(connection):
        return asking.receipt(connection.request("state.backup", {"destination": where}))


def prune(path: Path, before: int, where: str | None, *, apply: bool) -> dict[str, Any]:
    """Tell what could leave, or copy the file and let it leave."""
    connection = asking.find(path)
    if connection is None:
        asking.open_file(path).close()
        return asyncio.run(_prune_here(path, before, where, apply=apply))
    with closing(connection):
        return asking.receipt(connection.request("state.prune", {"apply": apply, "backup": where, "before": before}))


async def _prune_here(path: Path, before: int, where: str | None, *, apply: bool) -> dict[str, Any]:
    clock = SystemClock()
    folder = path.with_name(f"{path.name}.d")
    Database.look_at(path)
    with ownership.takeover_lock(folder / "lock"):
        database = Database.open(path, clock.now())
        try:
            own = ownership.take(database, clock)
        except BaseException:
            database.close()
            raise
    try:
        committer = Committer(database, clock, own, lambda _: None, lambda _: None)
        pruning = Pruning(database, committer, folder / "logs", clock.now)
        if not apply:
            return {"applied": False, **(await pruning.look(before)).to_json()}
        keeping = asyncio.create_task(_keep(committer, own))
        try:
            made = await asyncio.to_thread(backup.make, path, where or "")
            return await pruning.by_hand(before, made)
        finally:
            keeping.cancel()
    finally:
        with database.transaction() as connection:
            server_row.release(connection, own)
        database.close()
        ownership.ended(own)


async def _keep(committer: Committer, own: server_row.Ownership) -> None:
    """Stay the owner, however long it takes."""
    while True:
        await asyncio.sleep(server_row.SERVER_LEASE_MS / 3000)
        await committer.submit(lambda transaction: server_row.renew(transaction.sql(), own, transaction.now))


def moment(text: str) -> int:
    """Milliseconds since the epoch of an ISO time (UTC unless it names a zone), or of an age such as `30d` or `12h`.

    `ValueError` for anything else.
    """
    age = re.fullmatch(r"(\d{1,6})([dhm])", text.strip())
    now = dt.datetime.now(dt.UTC)
    if age is not None:
        unit = {"d": "days", "h": "hours", "m": "minutes"}[age[2]]
        found = now - dt.timedelta(**{unit: int(age[1])})
    else:
        found = dt.datetime.fromisoformat(text.strip().upper())
    return max(0, round((found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp() * 1000))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
