"""Work on the whole state file in a child: it takes long, and another process opens and closes the file.

The child ends with whoever asked: when the server stops, or when its process dies and the pipe to the child closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

from ..wire import errors
from ..wire.errors import PiWorkflowsError, StateUnavailableError


class Apart:
    """The children of one server that copy or check its file."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    async def ask(self, *words: str) -> dict[str, Any]:
        """What `python -m pi_workflows_nb.state WORDS` says; an error it names is raised here."""
        return await asyncio.to_thread(self._ask, words)

    def _ask(self, words: tuple[str, ...]) -> dict[str, Any]:
        child = subprocess.Popen(
            [sys.executable, "-m", "pi_workflows_nb.state", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._children.add(child)
        try:
            if self._ended:
                child.terminate()
            assert child.stdout is not None
            text = child.stdout.read()
            child.wait()
        finally:
            self._children.discard(child)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        if not text:
            raise StateUnavailableError(f"the process for {words[0]!r} ended before it was through; try again")
        said: dict[str, Any] = json.loads(text)
        if "error" in said:
            kind = getattr(errors, said["kind"], PiWorkflowsError)
            raise kind(said["error"])
        return said

    def end(self) -> None:
        """End what is under way."""
        self._ended = True
        for child in list(self._children):
            child.terminate()
