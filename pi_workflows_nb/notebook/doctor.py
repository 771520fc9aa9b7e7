"""`pw.doctor`: what may slow, block or endanger a state file here, each with what to do about it.

Every check looks and changes nothing. The file itself is opened through SQLite alone, as everywhere in this package.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd

from pi_workflows_nb.runner import proc
from pi_workflows_nb.server import processes
from pi_workflows_nb.state import admission, filesystems, server_row
from pi_workflows_nb.state.database import open_read_only
from pi_workflows_nb.wire.errors import PiWorkflowsError, StateFileError
from pi_workflows_nb.wire.sockets import state_folder

from . import starting
from .link import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .link import Connection
    from .server import Server

Status = Literal["ok", "note", "warning", "problem"]
STATUSES: Final = ("ok", "note", "warning", "problem")

SAFE_SQLITE: Final = (3, 51, 3)
OTHER_LIBRARIES: Final = ("adbc_driver_sqlite", "apsw", "duckdb", "libsql", "polars", "pysqlite3", "sqlcipher3")
IN_MEMORY: Final = ("tmpfs", "ramfs")
LITTLE_SPACE: Final = 256 << 20
NO_SPACE: Final = 8 << 20
LONG_LOG: Final = 96 << 20
PINNED_LOG: Final = 8 << 20
LATE_MS: Final = 200
JUMP_MS: Final = 2_000
AHEAD_MS: Final = 5_000
_READ_MARKS: Final = range(123, 128)  # bytes of the -shm: which part of the log a reader still needs


@dataclass(frozen=True)
class _Found:
    check: str
    status: Status
    what: str
    what_to_do: str = ""


class Report(pd.DataFrame):
    """What the doctor found: columns check, status (ok, note, warning, problem), what, what_to_do."""

    def __repr__(self) -> str:
        lines = []
        for check, status, what, what_to_do in self.itertuples(index=False, name=None):
            lines.append(f"{check:<12}{status:<9}{what}")
            if what_to_do:
                lines.append(f"{'':<21}→ {what_to_do}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            html: str = pd.DataFrame(self).to_html(index=False, escape=True, border=0)
        return html


def doctor(database: str | os.PathLike[str] | Server | None = None) -> Report:
    """Look for what may slow, block or endanger a state file in this kernel and on this machine.

    `database` is a server, the path of a file, or None for the newest server of this kernel and, without one, the
    default file. Gives a frame with a row for each check: its `status` is `ok`, `note`, `warning` or `problem`, `what`
    says what was found and `what_to_do` what helps (text). Nothing is changed. `StateFileError` for an impossible path.
    """
    path, connection = _subject(database)
    told = _told(connection)
    found = [
        _sqlite(),
        _libraries(connection),
        _filesystem(path),
        _space(path),
        _file(path, connection, told),
        _lag(told),
        _log(path),
        _orphans(path),
        _clock(path, told),
    ]
    columns = {
        "check": pd.array([one.check for one in found], dtype="string"),
        "status": pd.Categorical([one.status for one in found], STATUSES, ordered=True),
        "what": pd.array([one.what for one in found], dtype="string"),
        "what_to_do": pd.array([one.what_to_do for one in found], dtype="string"),
    }
    report = Report(columns)
    report.attrs["database"] = str(path)
    return report


def _subject(database: str | os.PathLike[str] | Server | None) -> tuple[Path, Connection | None]:
    if database is not None and not isinstance(database, (str, os.PathLike)):
        return database.database, database._connection
    known = starting.connections()
    if database is None:
        if known:
            return next(reversed(known.items()))
        return admission.resolve(state_folder() / "state.sqlite"), None
    path = admission.resolve(starting.local_database() if database == "local" else database)
    return path, known.get(path)


def _told(connection: Connection | None) -> dict[str, Any] | None:
    """What the server says of itself, or None when there is none to ask."""
    if connection is None or not connection.alive:
        return None
    try:
        response = connection.request("server.status", {})
        if response.outcome != "accepted":
            raise refusal(response, "server.status")
    except PiWorkflowsError:
        return None
    return response.receipt


def _sqlite() -> _Found:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= SAFE_SQLITE:
        return _Found("sqlite", "ok", f"SQLite {version}")
    return _Found(
        "sqlite",
        "note",
        f"SQLite {version}: before 3.51.3, two connections that checkpoint a log at the same moment can, rarely,"
        " damage the file",
        "leave checkpoints to the server, which makes them on one connection: no PRAGMA wal_checkpoint by hand, and"
        " PRAGMA wal_autocheckpoint=0 on connections of your own; a newer Python brings a newer SQLite",
    )


def _libraries(connection: Connection | None) -> _Found:
    loaded = [name for name in OTHER_LIBRARIES if name in sys.modules]
    if not loaded:
        return _Found("libraries", "ok", "no second SQLite library is loaded in this kernel")
    here = connection is not None and connection.alive and connection.placement == "thread"
    return _Found(
        "libraries",
        "warning" if here else "note",
        f"{', '.join(loaded)}: each brings a SQLite of its own, and closing a live state file with it drops the locks"
        " that a server in this kernel holds on it",
        "read the file with server.sql(), server.db or pandas over the standard sqlite3; or give those a copy, or keep"
        ' the server out of this kernel with pw.start(server="process")',
    )


def _filesystem(path: Path) -> _Found:
    kind = filesystems.filesystem_of(path)
    if filesystems.network_filesystem(path) is not None:
        return _Found(
            "filesystem",
            "problem",
            f"{path} lies on a network filesystem ({kind}), where SQLite cannot guard a file that is being written",
            'choose a path on a local disk, or pw.start(database="local")',
        )
    if kind in IN_MEMORY:
        return _Found(
            "filesystem",
            "warning",
            f"{path} lies in memory ({kind}) and is gone when the machine restarts",
            "choose a path on a disk for what must last",
        )
    return _Found("filesystem", "ok", f"{path} lies on a local filesystem ({kind or 'of a kind the system hides'})")


def _space(path: Path) -> _Found:
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    said = f"{_bytes(free)} are free where {path} lies"
    if free >= LITTLE_SPACE:
        return _Found("disk", "ok", said)
    return _Found(
        "disk",
        "problem" if free < NO_SPACE else "warning",
        said,
        "make room: on a full disk runs stand still, lose nothing, and go on when there is some again",
    )


def _file(path: Path, connection: Connection | None, told: dict[str, Any] | None) -> _Found:
    if told is not None and connection is not None:
        where = "this kernel" if connection.placement == "thread" else "a process of its own"
        if not told["fileInPlace"]:
            return _Found(
                "file",
                "problem",
                f"{path} is not there any more, or another file is: its server in {where} writes nothing",
                "put it back where it was; or stop this server and start one on another path",
            )
        return _Found("file", "ok", f"served from {where} (pid {told['pid']}, epoch {told['epoch']})")
    if not os.path.lexists(path):
        return _Found("file", "ok", f"{path} does not exist yet", "pw.start() makes it")
    try:
        with closing(open_read_only(path)) as reading:
            owner = server_row.owner(reading)
    except (StateFileError, sqlite3.Error) as error:
        return _Found("file", "problem", str(error), "see what it says")
    if owner is None:
        return _Found("file", "ok", "at rest: no server owns it", "pw.start() serves it")
    if processes.is_alive(owner.pid, owner.start_identity):
        return _Found(
            "file",
            "note",
            f"served by another process (pid {owner.pid}): {_program(owner.pid)}",
            "pw.start() attaches to a server in a process of its own; one inside a kernel must stop first",
        )
    return _Found(
        "file",
        "warning",
        f"its last server (pid {owner.pid}) ended without giving it back",
        "pw.start() takes it over, and its runs go on",
    )


def _lag(told: dict[str, Any] | None) -> _Found:
    if told is None:
        return _Found("server", "ok", "no server of this kernel to ask")
    worst = told["worstLagMs"]
    if worst <= LATE_MS:
        return _Found("server", "ok", f"never late by more than {LATE_MS} ms in the last minute")
    if told["pid"] != os.getpid():
        return _Found(
            "server",
            "warning",
            f"the server was late by {worst} ms in the last minute: its machine is busy, or was stopped for a while",
            "give the machine less to do, or start the server with a smaller max_runners",
        )
    return _Found(
        "server",
        "warning",
        f"the cell slows the server: it was late by {worst} ms in the last minute",
        'stop it and use pw.start(server="process"): in a process of its own no cell slows it',
    )


def _log(path: Path) -> _Found:
    try:
        size = os.stat(f"{path}-wal").st_size
    except OSError:
        return _Found("log", "ok", "no write-ahead log beside the file")
    readers = sorted(set(_readers(path)))
    said = f"the write-ahead log has {_bytes(size)}"
    if readers:
        said += "; it is read by " + ", ".join(f"{pid} ({_program(pid)})" for pid in readers)
    if not (size > LONG_LOG or (readers and size > PINNED_LOG)):
        return _Found("log", "ok", said)
    if readers:
        return _Found(
            "log",
            "warning",
            f"{said}: what a reader still needs cannot be taken out of the log",
            "end the query or the transaction that is open there (close its connection, or fetch all rows)",
        )
    return _Found("log", "note", said, "it shrinks when the server is idle for a moment")


def _readers(path: Path) -> Iterator[int]:
    """The processes that have a read mark in the log, from the system's table of locks."""
    table = proc.read_file("/proc/locks")
    try:
        inode = os.stat(f"{path}-shm").st_ino
    except OSError:
        return
    for line in (table or b"").decode().splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[1] != "POSIX" or fields[5].rpartition(":")[2] != str(inode):
            continue
        first, last = int(fields[6]), sys.maxsize if fields[7] == "EOF" else int(fields[7])
        if first <= _READ_MARKS[-1] and last >= _READ_MARKS[0] and int(fields[4]) > 0:
            yield int(fields[4])


def _orphans(path: Path) -> _Found:
    carried: dict[str, list[int]] = {}
    for pid in proc.all_pids():
        stat = proc.read_stat(pid)
        epoch = _epoch_of(pid) if stat is not None and not stat.ended else None
        if epoch is not None:
            carried.setdefault(epoch, []).append(pid)
    orphans: list[int] = []
    if carried and os.path.lexists(path):
        try:
            with closing(open_read_only(path)) as reading:
                owner = server_row.owner(reading)
                served = owner is not None and processes.is_alive(owner.pid, owner.start_identity)
                for epoch, pids in carried.items():
                    row = reading.execute("SELECT finished_at FROM run_workers WHERE worker_epoch = ?", (epoch,))
                    finished = row.fetchone()
                    if finished is not None and (finished[0] is not None or not served):
                        orphans += pids
        except (StateFileError, sqlite3.Error):
            return _Found("processes", "note", "the file cannot be asked which processes are its own", "see file")
    if not orphans:
        return _Found("processes", "ok", "no process of a runner that has ended is left")
    named = ", ".join(f"{pid} ({_program(pid)})" for pid in sorted(orphans))
    return _Found(
        "processes",
        "warning",
        f"left over from runners that have ended: {named}",
        f"end them if they are of no use: kill {' '.join(map(str, sorted(orphans)))}",
    )


def _epoch_of(pid: int) -> str | None:
    environment = proc.read_file(f"/proc/{pid}/environ")
    mark = f"{proc.EPOCH_VARIABLE}=".encode()
    if environment is None or mark not in environment:
        return None
    values = [entry.removeprefix(mark) for entry in environment.split(b"\0") if entry.startswith(mark)]
    return values[0].decode("ascii", "replace") if values else None


def _clock(path: Path, told: dict[str, Any] | None) -> _Found:
    if told is not None and abs(told["clockJumpMs"]) > JUMP_MS:
        way = "forward" if told["clockJumpMs"] > 0 else "back"
        return _Found(
            "clock",
            "warning",
            f"the machine's clock was set {way} by {abs(told['clockJumpMs']) / 1000:.1f} s while the server ran",
            "nothing is lost: what waits is measured by another clock; only times in the file look odd around then",
        )
    ahead = _newest(path) - time.time_ns() // 1_000_000
    if ahead > AHEAD_MS:
        return _Found(
            "clock",
            "warning",
            f"the file was last written {ahead / 1000:.0f} s in the future of this machine's clock",
            "set the clock; until then leases of before look longer than they are",
        )
    if told is not None and told["suspendedMs"] > JUMP_MS:
        return _Found(
            "clock",
            "note",
            f"the machine slept for {told['suspendedMs'] / 1000:.0f} s while the server ran",
            "nothing: deadlines are not eaten by a pause",
        )
    return _Found("clock", "ok", "no jump was seen")


def _newest(path: Path) -> int:
    """The newest time in the file, in milliseconds; 0 when there is none."""
    try:
        with closing(open_read_only(path)) as reading:
            row = reading.execute(
                "SELECT max(coalesce((SELECT heartbeat_at FROM workflow_host_state), 0),"
                " coalesce((SELECT recorded_at FROM events ORDER BY rowid DESC LIMIT 1), 0))"
            ).fetchone()
    except (StateFileError, sqlite3.Error):
        return 0
    return int(row[0])


def _program(pid: int) -> str:
    if pid == os.getpid():
        return "this kernel"
    words = (proc.read_file(f"/proc/{pid}/cmdline") or b"").split(b"\0")
    text = " ".join(word.decode("utf-8", "replace") for word in words).strip()
    return text[:60] or "a process that does not say its name"


def _bytes(count: int) -> str:
    size, units = float(count), iter(("bytes", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1024 and unit != "TiB":
        size, unit = size / 1024, next(units)
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
