"""What a server and its children use, by `/proc`: memory, descriptors, threads, processes."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pi_workflows_nb.state.database import open_read_only
from tests.trials.family import children

KIB = 1024


@dataclass(frozen=True)
class Sample:
    """One look, in bytes and counts. Memory of the server is its own alone; that of the nursery, all, since how much of
    it is shared depends on how many children it has; `runners` are these children, `file_bytes` what the file holds.
    """

    at: float
    server_bytes: int
    nursery_bytes: int
    descriptors: int
    threads: int
    runners: int
    log_bytes: int
    file_bytes: int
    ended: int


def memory(pid: int, *kinds: str) -> int:
    """The memory of a process, of these kinds (`Rss`, `Private_Clean`, ...), in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * KIB for line in lines if line.partition(":")[0] in kinds)


def _count(pid: int, what: str) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/{what}"))
    except OSError:
        return 0


class Gauge:
    """Looks at a server every `seconds`, on a thread of its own, until it is closed."""

    def __init__(self, pid: int, database: Path, ended: list[str], seconds: float = 0.5) -> None:
        self.samples: list[Sample] = []
        self._pid = pid
        self._database = database
        self._log = database.with_name(database.name + "-wal")
        self._ended = ended
        self._seconds = seconds
        self._begun = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gauge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            self.samples.append(self._look())

    def _look(self) -> Sample:
        nurseries = [pid for pid in children(self._pid) if "pi-nursery" in _name(pid)]
        return Sample(
            at=time.monotonic() - self._begun,
            server_bytes=memory(self._pid, "Private_Clean", "Private_Dirty"),
            nursery_bytes=sum(memory(pid, "Rss") for pid in nurseries),
            descriptors=_count(self._pid, "fd"),
            threads=_count(self._pid, "task"),
            runners=sum(len(children(pid)) for pid in nurseries),
            log_bytes=self._log.stat().st_size if self._log.exists() else 0,
            file_bytes=self._file_bytes(),
            ended=len(self._ended),
        )

    def _file_bytes(self) -> int:
        with closing(open_read_only(self._database)) as connection:
            pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages * size)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
