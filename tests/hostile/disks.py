"""Small disks that a test mounts, fills and takes away, and other things that happen to a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(point: Path, size: str = "8m") -> Iterator[Path]:
    """A tmpfs of its own, gone afterwards; where nothing may be mounted the test is skipped."""
    point.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", point)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that nobody can write to, root neither."""
    _mount("--bind", folder, folder)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _mount(*arguments: object) -> None:
    try:
        said = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount on this system")
    if said.returncode != 0:
        pytest.skip(f"nothing may be mounted here: {said.stderr.strip()}")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Not a byte is left on the disk of a folder."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    try:
        yield
    finally:
        filler.unlink()


def contents(folder: Path) -> dict[str, object]:
    """All that lies in a folder, with what would tell that it was touched."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[os.fspath(path.relative_to(folder))] = (data, status.st_mtime_ns, status.st_mode, status.st_ino)
    return found
