"""Where the server of a state file listens."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

LONGEST_SOCKET_PATH: Final = 100


def socket_path(database: Path, home: Path) -> Path:
    """Where the server of a file listens: in the state folder, or, when that path is too long, in a private folder."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:16] + ".sock"
    path = home / name
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"pi-workflows-nb-{os.getuid()}"
    return folder / name
