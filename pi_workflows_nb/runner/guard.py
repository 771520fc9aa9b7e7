"""Locks on a live state file, held by a process that never opens it with SQLite.

POSIX locks belong to a process, and closing any descriptor of a file drops all locks the process has on it. A server
inside a kernel can lose its own that way at any moment, to a cell that copies the file. The next program that opens
and closes the file would then think it is the last one, and delete a WAL that is in use. These shared locks, taken
where no cell can reach them, keep every other program from thinking so:

- on the shared bytes of the main file, which closing must have exclusively before it removes the `-wal`;
- on the byte of the `-shm` that tells an opening program whether the index is in use.
"""

from __future__ import annotations

import errno
import fcntl
import os

SHARED_FIRST = 1073741826
SHARED_SIZE = 510
INDEX_IN_USE = 128


class Guard:
    """The two locks of one state file, with the descriptors that hold them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._held: list[tuple[int, tuple[int, int]]] = []

    def take(self) -> bool:
        """Try once to get what is missing; True when both locks are held on the files that are at the path now.

        Gives False while another program holds one exclusively (a moment, when it opens or closes the file), and
        raises OSError when a file is missing or cannot be opened.
        """
        parts = ((self.path, SHARED_FIRST, SHARED_SIZE), (self.path + "-shm", INDEX_IN_USE, 1))
        if self._held and [identity for _, identity in self._held] != [_identity(path) for path, _, _ in parts]:
            self.release()
        for path, first, size in parts[len(self._held) :]:
            # Descriptor and lock go together: closing a second descriptor of the same file would drop the first lock.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, size, first)
                status = os.fstat(descriptor)
            except OSError as error:
                os.close(descriptor)
                if error.errno in {errno.EACCES, errno.EAGAIN}:
                    self.release()
                    return False
                raise
            self._held.append((descriptor, (status.st_dev, status.st_ino)))
        return True

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that hold the locks."""
        return [descriptor for descriptor, _ in self._held]

    def release(self) -> None:
        """Give both locks up."""
        while self._held:
            os.close(self._held.pop()[0])


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
