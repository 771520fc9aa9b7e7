"""Work on a whole file in a process of its own: `python -m pi_workflows_nb.state backup FILE PATH | verify FILE`.

It says one JSON object on its standard output, and ends soon, with nothing left, when its standard input does: whoever
asked is gone.
"""

from __future__ import annotations

import _thread
import dataclasses
import json
import signal
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..wire.errors import PiWorkflowsError
from . import backup
from .database import open_read_only
from .verify import verify

MOST_FINDINGS: Final = 200


def main(words: list[str]) -> int:
    """Do one piece of work; 0 when it is done, 1 when it cannot be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_asker, daemon=True).start()
    try:
        said = _backup(*words[1:]) if words[0] == "backup" else _verify(*words[1:])
    except PiWorkflowsError as error:
        said = {"error": str(error), "kind": type(error).__name__}
    except (OSError, sqlite3.Error) as error:
        said = {"error": f"{words[1]} cannot be read ({error})", "kind": "StateUnavailableError"}
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    return "error" in said


def _end_with_asker() -> None:
    sys.stdin.buffer.read()
    _thread.interrupt_main()


def _backup(source: str, path: str) -> dict[str, Any]:
    return backup.make(Path(source), path)


def _verify(source: str) -> dict[str, Any]:
    with closing(open_read_only(source)) as connection:
        found = verify(connection)
    listed = [dataclasses.asdict(finding) for finding in found[:MOST_FINDINGS]]
    return {
        "errors": sum(finding.severity == "error" for finding in found),
        "findings": listed,
        "warnings": sum(finding.severity == "warning" for finding in found),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
