"""The state folder, and where the server of a state file listens."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

LONGEST_SOCKET_PATH: Final = 100


def state_folder() -> Path:
    """The folder of the default file, the sockets and the signing key: `PI_WORKFLOWS_HOME`, or one in the home."""
    given = os.environ.get("PI_WORKFLOWS_HOME")
    return Path(given).expanduser() if given else Path.home() / ".pi" / "agent" / "workflows-nb"


def socket_path(database: Path, home: Path) -> Path:
    """Where the server of a file listens: in the state folder, or, when that path is too long, in a private folder."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(database))).hexdigest()[:16] + ".sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    private = f"pi-workflows-nb-{os.getuid()}"
    folders = [home, *([Path(runtime)] if runtime else []), Path(tempfile.gettempdir(), private)]
    fitting = (folder for folder in folders if len(os.fsencode(folder / name)) <= LONGEST_SOCKET_PATH)
    return next(fitting, Path("/tmp", private)) / name  # noqa: S108 - a folder of this user alone
