"""Files of what nodes print: one per runner while it runs, renamed to its attempt's id when the attempt ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..runner.output import cut


def tail(path: Path, size: int) -> str:
    """The last `size` bytes of a log as text; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def cap(path: Path) -> None:
    """Cut the log of a runner that does not do it itself, since its code keeps everything else in it from running."""
    with contextlib.suppress(OSError):
        cut(path)


def attribute(path: Path, attempts: Sequence[str]) -> None:
    """Give what a gone runner printed last to its last attempt, or remove the file when it printed nothing.

    Children of its attempts may have written on in finished logs when it had looked for the last time.
    """
    for one in attempts:
        cap(path.with_name(f"{one}.log"))
    attempt_id = attempts[-1] if attempts else None
    with contextlib.suppress(OSError):
        cut(path)
        if path.stat().st_size == 0 or attempt_id is None:
            path.unlink()
        elif not path.with_name(f"{attempt_id}.log").exists():
            path.rename(path.with_name(f"{attempt_id}.log"))
