"""`pi-workflows-nb server start | status | stop | run`: a server that outlives kernels and terminals."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from ..client.launching import start_server
from ..server.__main__ import serve
from ..server.options import Options
from ..wire.errors import ServerRunningError
from ..wire.sockets import state_folder
from . import asking

RACE_SECONDS: Final = 5.0
PREFIX: Final = "[server]"


def start(path: Path) -> dict[str, Any]:
    """Start a server in the background, unless one serves already, and give its status once it is ready."""
    if not asking.answers(path):
        try:
            start_server(path, _home(), {**_options(), "endWhenAlone": False})
        except ServerRunningError:
            # Another start has won by a moment, and opens its socket just now.
            give_up = time.monotonic() + RACE_SECONDS
            while not asking.answers(path):
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
    return status(path)


def status(path: Path) -> dict[str, Any]:
    """Counts and times of the server. `ServerStoppedError` where nobody serves."""
    with asking.server_of(path) as connection:
        return asking.receipt(connection.request("server.status", {}))


def stop(path: Path) -> dict[str, Any]:
    """Stop the server and wait until it has given the file back. `ServerStoppedError` where nobody serves."""
    with asking.server_of(path) as connection:
        connection.stop_server()
        return {"pid": connection.server_pid, "stopped": True}


def run(path: Path) -> None:
    """Serve in this process until SIGTERM, SIGINT or `server stop`; every line begins with `[server]`."""
    logging.basicConfig(
        level=logging.INFO, format=f"{PREFIX} %(asctime)s %(levelname)s %(message)s", stream=sys.stdout, force=True
    )

    def ready(socket: Path) -> None:
        print(f"{PREFIX} serves {path} on {socket}, process {os.getpid()}", flush=True)

    options = Options.of_json(_options(), in_kernel=False)
    asyncio.run(serve(path, _home(), options, ready, end_when_alone=False))
    print(f"{PREFIX} stopped; its runs wait for the next start", flush=True)


def _options() -> dict[str, Any]:
    return {"maxRunners": 2 * (os.cpu_count() or 1), "preload": [], "runAhead": 16}


def _home() -> Path:
    home = state_folder()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home
