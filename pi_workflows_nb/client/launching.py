"""Starting a server in a process of its own, and finding one that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..wire import errors
from ..wire.errors import PiWorkflowsError, ServerStoppedError


def start_server(database: Path, home: Path, options: dict[str, Any]) -> tuple[Path, subprocess.Popen[str]]:
    """Start a server by exec, in a session of its own, and wait until it serves. Gives its socket and the process.

    What kept it from serving is raised as it would be by a server in this process.
    """
    folder = database.with_name(database.name + ".d")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pi_workflows_nb.server", str(database), str(home), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    assert process.stdout is not None
    with process.stdout as stdout:
        line = stdout.readline()
    if not line:
        process.wait()
        raise ServerStoppedError(f"the server process ended before it served; {folder / 'server.log'} says why")
    said = json.loads(line)
    if "error" in said:
        process.wait()
        kind = getattr(errors, said["kind"], PiWorkflowsError)
        raise kind(said["error"])
    return Path(said["socket"]), process
