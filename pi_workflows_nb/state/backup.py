"""A copy of a state file that is known to be one: made by SQLite in one step, then read and checked, then named.

In WAL mode the copy is one read transaction: nobody waits for it. It belongs in a process of its own, since it opens
and closes the file (`python -m pi_workflows_nb.state backup`).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..wire.errors import StateFileError
from . import admission
from .database import open_read_only
from .verify import COPIED, verify

_BESIDE: Final = ("", "-wal", "-shm", "-journal")


def destination(path: str | os.PathLike[str], source: Path) -> Path:
    """The real path of a backup that can be made of a file; `StateFileError` says why there can be none."""
    if not Path(path).expanduser().is_absolute():
        raise StateFileError(f"{os.fspath(path)} is no absolute path: say where the backup is to be")
    real = admission.resolve(path)
    if str(real) in {f"{source}{ending}" for ending in _BESIDE} or (real.exists() and real.samefile(source)):
        raise StateFileError(f"{real} is the state file itself: give its backup another path")
    if os.path.lexists(real):
        raise StateFileError(f"{real} is there already, and a backup replaces nothing: give it another path")
    if not real.parent.is_dir():
        raise StateFileError(f"{real} cannot be made ({real.parent} is no folder): make the folder first")
    return real


def make(source: Path, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Copy a state file, live or at rest, and give what the copy holds: path, bytes, and how many findings.

    The copy gets its name when its pages, references and digests were found sound; other findings of `verify` are
    copied with the file, and counted. `StateFileError`, and nothing is left, when it is not sound or cannot be made.
    """
    real = destination(path, source)
    aside = real.with_name(f".{real.name}.{secrets.token_hex(6)}.new")
    try:
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            _copy(source, aside)
            findings = _checked(aside, source)
            os.link(aside, real)
        finally:
            aside.unlink(missing_ok=True)
        folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return {"bytes": real.stat().st_size, "findings": findings, "path": str(real)}
    except FileExistsError as error:
        raise StateFileError(f"{real} was made meanwhile, and a backup replaces nothing: give another path") from error
    except (OSError, sqlite3.Error) as error:
        raise StateFileError(
            f"the backup {real} cannot be made ({error}): make room, or choose another path"
        ) from error


def _copy(source: Path, aside: Path) -> None:
    with closing(open_read_only(source)) as reading, closing(sqlite3.connect(aside)) as copy:
        reading.backup(copy, pages=-1)
    descriptor = os.open(aside, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(aside: Path, source: Path) -> int:
    with closing(open_read_only(aside, live=False)) as reading:
        found = verify(reading)
    broken = next((finding for finding in found if finding.rule in COPIED), None)
    if broken is not None:
        raise StateFileError(
            f"{source} has a fault that no backup may carry on ({broken.rule}: {broken.table} {broken.id},"
            f" {broken.what_is}): `state verify` lists all; go back to an earlier backup"
        )
    return sum(finding.severity == "error" for finding in found)
