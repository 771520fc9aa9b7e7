"""`pw.start`: choose the file, the project and the placement, and give the object that a cell works with."""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..state import admission
from ..wire.errors import StateFileError
from ..wire.sockets import state_folder

if TYPE_CHECKING:
    from .attachment import Attachment
    from .server import Server

_servers: dict[tuple[int, Path], tuple[Any, dict[Path, Server]]] = {}
DAYS_30 = dt.timedelta(days=30)
LOCAL_FOLDERS = (Path("/var/tmp"),)  # noqa: S108 - the folder made in it is private


def local_database() -> Path:
    """A path on a local disk of this machine, for homes on a network filesystem."""
    folder = next((path for path in LOCAL_FOLDERS if path.is_dir()), Path(tempfile.gettempdir()))
    return folder / f"pi-workflows-nb-{os.getuid()}" / "state.sqlite"


def connections() -> dict[Path, Any]:
    """The connections of this kernel to servers that serve, by file, oldest first."""
    return {path: one for (pid, path), (one, _) in _servers.items() if pid == os.getpid() and one.alive}


def start(
    database: str | os.PathLike[str] | None = None,
    project: str | os.PathLike[str] | None = None,
    session: str | None = None,
    server: Literal["thread", "process"] = "thread",
    preload: tuple[str, ...] = (),
    max_runners: int | None = None,
    retention: dt.timedelta | None = DAYS_30,
) -> Server:
    """Serve a state file, or attach to the server that serves it already, in another kernel or a process of its own.

    `database` is a path, `"local"` for a file on a local disk, or None for `state.sqlite` in the state folder; the file
    is made where there is none. `project` is the folder whose workflows and runs this is about, by default the working
    folder. `session` names the notebook. `server` places the server in a background thread of this kernel or in a
    process of its own. `preload` names modules that every runner shall have imported already. At most `max_runners`
    runs execute at once, by default two for each core. Runs that ended more than `retention` ago leave the file while
    the server is idle, with all that is their own, when nothing needs them any more; None keeps everything.

    When the server dies, this kernel tries to serve in its place, as placed, and so does every other one that is
    attached; one of them wins, and all objects go on with it. A server that was stopped stays so.

    Called again for the same file and project it gives the same object. Errors: `StateFileError` for a file that cannot
    be served, `ServerRunningError` when a server holds it that cannot be reached, such as one of another state folder.
    """
    if server not in ("thread", "process"):
        raise StateFileError(f'server={server!r}: say "thread" (in this kernel) or "process" (in a process of its own)')
    if max_runners is not None and max_runners < 1:
        raise StateFileError(f"max_runners={max_runners}: at least 1")
    age: object = retention
    if age is not None and not (isinstance(age, dt.timedelta) and age >= dt.timedelta()):
        raise StateFileError(f"retention={retention!r}: an age such as timedelta(days=30), or None to keep everything")
    home = _made(state_folder())
    path = admission.resolve(
        home / "state.sqlite" if database is None else local_database() if database == "local" else database
    )
    folder = Path(os.path.realpath(Path(project or os.getcwd()).expanduser()))
    if not folder.is_dir():
        raise StateFileError(f"project {folder} is not a folder: give the folder whose workflows this is about")
    known = _servers.get((os.getpid(), path))
    if known is not None and not known[0].alive:
        del _servers[os.getpid(), path]
        known = None
    if known is None:
        options = {
            "endWhenAlone": True,
            "maxRunners": max_runners or 2 * (os.cpu_count() or 1),
            "preload": list(preload),
            "retentionMs": None if retention is None else retention // dt.timedelta(milliseconds=1),
            "runAhead": int(os.environ.get("PI_WORKFLOWS_NB_RUN_AHEAD", "16")),
        }
        connection = connect(server, path, home, folder, options)
        known = _servers[os.getpid(), path] = (connection, {})
        connection.on_stopped(lambda: _forget(connection))
    connection, by_project = known
    if folder not in by_project:
        from .server import Server

        by_project[folder] = Server(connection, project=folder, session=session, home=home)
    _load_magics()
    return by_project[folder]


def _forget(connection: Attachment) -> None:
    """Keep nothing of a server that has ended; a cell may still hold its object."""
    for key, (known, _) in list(_servers.items()):
        if known is connection:
            del _servers[key]


def _made(home: Path) -> Path:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateFileError(
            f"the state folder {home} cannot be made ({error.strerror}): set PI_WORKFLOWS_HOME to a folder that you may"
            " write to"
        ) from error
    return home


def connect(placement: str, path: Path, home: Path, project: Path, options: dict[str, Any]) -> Attachment:
    """The way to the server of a file: to the one that serves it already, or to one started now, as placed."""
    from .attachment import Attachment
    from .place import Place

    attachment = Attachment(Place(path, home, project, placement, options))
    attachment.open()
    return attachment


def _load_magics() -> None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        from .magics import load_ipython_extension

        load_ipython_extension(shell)
