"""The server in a process of its own: `python -m pi_workflows_nb.server DATABASE HOME OPTIONS`.

Started by a kernel it ends 10 s after its last client has gone; started by hand it lives until it is told to stop. It
says on its standard output, in one JSON line, that it serves or why it does not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..wire.errors import PiWorkflowsError
from ..wire.sockets import socket_path
from .options import Options
from .server import WorkflowServer

IDLE_SECONDS: Final = 10.0


def main(argv: list[str]) -> int:
    """Serve until stopped; 0 after a clean stop, 1 when the file could not be served."""
    database, home, given = Path(argv[0]), Path(argv[1]), json.loads(argv[2])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        options = Options.of_json(given, in_kernel=False)
        asyncio.run(
            serve(
                database, home, options, lambda path: _say({"socket": str(path)}), end_when_alone=given["endWhenAlone"]
            )
        )
    except PiWorkflowsError as error:
        _say({"error": str(error), "kind": type(error).__name__})
        return 1
    except Exception as error:
        logging.getLogger(__name__).exception("the server ended")
        _say({"error": f"the server could not go on: {error!r}", "kind": "PiWorkflowsError"})
        return 1
    return 0


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def serve(
    database: Path, home: Path, options: Options, ready: Callable[[Path], None], *, end_when_alone: bool
) -> None:
    """Serve a file until told to stop, by a client or a signal; `ready` is called with the socket once it serves."""
    server = WorkflowServer(database, home, options)
    await server.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.request_stop)
    ready(socket_path(server.path, home))
    watch = asyncio.create_task(_end_when_alone(server)) if end_when_alone else None
    await server.wait_stopped()
    if watch is not None:
        watch.cancel()


async def _end_when_alone(server: WorkflowServer) -> None:
    alone_since: float | None = server.clock.monotonic()
    while True:
        await asyncio.sleep(0.5)
        now = server.clock.monotonic()
        if server.listener.clients:
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > IDLE_SECONDS:
            server.request_stop()
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
