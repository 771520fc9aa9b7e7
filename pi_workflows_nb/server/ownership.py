"""One owner for a file: taking it, holding it, giving it back.

The owner is row 1 of the host state. The lock file is a mutex for taking over, held for that moment only. It is a POSIX
lock, since a `multiprocessing` child would keep a flock after its kernel is gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..state import server_row
from ..state.database import Database
from ..wire.errors import ServerRunningError
from . import processes
from .clock import Clock

LOCK_WAIT_SECONDS: Final = 10.0
UNRENEWED_SECONDS: Final = server_row.SERVER_LEASE_MS / 1000 + 1
_serving: Final[set[str]] = set()  # servers of this process that have not ended, by id


@contextmanager
def takeover_lock(path: Path) -> Iterator[None]:
    """Hold the mutex of taking over; `ServerRunningError` when another start holds it for longer than 10 s."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > give_up:
                    raise ServerRunningError(
                        f"another start of a server holds {path}; try again when it is through"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def take(database: Database, clock: Clock) -> server_row.Ownership:
    """Become the file's owner; `ServerRunningError` while another live process is.

    An owner whose exact process is gone is replaced at once. Of one from another boot or pid namespace nothing is
    known, so its lease must have run out: that is waited for, by the file's clock or, since that may have been set back
    meanwhile, for as long as a lease that nobody renews can last.
    """
    began = time.monotonic()
    expires_at: int | None = None
    while True:
        owner = server_row.owner(database.connection)
        if owner is None:
            break
        alive = processes.is_alive(owner.pid, owner.start_identity)
        if alive and owner.pid == os.getpid() and owner.server_id not in _serving:
            break  # an earlier server of this process that could not give the file back, as on a full disk
        if alive is None and expires_at not in (None, owner.expires_at):
            alive = True  # it renews its lease
        expires_at = owner.expires_at
        run_out = expires_at <= clock.now() or time.monotonic() - began > UNRENEWED_SECONDS
        if alive is False or (alive is None and run_out):
            break
        if alive:
            raise ServerRunningError(
                f"{database.path} is served by process {owner.pid} already: stop that server (`server.stop()` in its"
                " notebook) or give another database to pw.start()"
            )
        time.sleep(0.2)
    identity = processes.start_identity(os.getpid()) or "unknown"
    with database.transaction() as connection:
        own = server_row.take(connection, os.getpid(), identity, clock.now())
    _serving.add(own.server_id)
    return own


def ended(own: server_row.Ownership) -> None:
    """This server has closed the file, whether it could give it back or not."""
    _serving.discard(own.server_id)
