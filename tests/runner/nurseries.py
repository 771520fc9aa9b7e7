"""Starting nurseries in tests, and looking at what lives."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pi_workflows_nb.runner import proc
from pi_workflows_nb.server.nursery import Child, Nursery

HERE = Path(__file__).parent
PATH = [*sys.path, str(HERE)]
FOREVER = "channel.send(b'here'); time.sleep(1000)"


def nothing() -> None:
    """For a nursery whose loss is no part of the test."""


@asynccontextmanager
async def nursery(on_lost: Callable[[], None] = nothing, **options: Any) -> AsyncIterator[Nursery]:
    made = await Nursery.start(on_lost=on_lost, path=PATH, entry="nursery_entry:main", **options)
    try:
        yield made
    finally:
        await made.stop()


async def spawn(
    made: Nursery,
    code: str,
    *,
    epoch: str = "runner-epoch",
    environment: Mapping[str, str] | None = None,
    folder: str = "/",
) -> Child:
    return await made.spawn(mode=code, environment=environment, folder=folder, log=Path("/dev/null"), epoch=epoch)


async def heard(child: Child, size: int = 65536) -> str:
    """The next thing a runner says."""
    return (await asyncio.wait_for(asyncio.get_running_loop().sock_recv(child.socket, size), 10)).decode()


async def finished(made: Nursery, code: str, **options: Any) -> tuple[int | None, str]:
    """The status of a short runner, and what it said."""
    child = await spawn(made, code, **options)
    status = await asyncio.wait_for(child.exited, 10)
    said = b""
    try:
        while part := child.socket.recv(65536):
            said += part
    except ConnectionError:
        pass
    child.socket.close()
    return status, said.decode()


def alive(pid: int) -> bool:
    stat = proc.read_stat(pid)
    return stat is not None and not stat.ended


def gone_within(seconds: float, *pids: int) -> bool:
    until = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue
    return found
