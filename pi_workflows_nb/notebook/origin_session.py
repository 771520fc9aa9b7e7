"""Which session a notebook is: the same after its kernel has restarted, another for a copy of the notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..wire import identities
from . import kernel


def origin_session(project: Path, given: str | None = None) -> str:
    """The id of the session of this notebook in a project.

    It is made of `given`, else of the notebook's path, else of the kernel's connection file; outside a kernel, of the
    program that runs.
    """
    return identities.origin_session_id(identities.project_id(project), given or _name())


def _name() -> str:
    shell = kernel.shell()
    variables = {} if shell is None else shell.user_ns
    path = os.environ.get("JPY_SESSION_NAME") or variables.get("__vsc_ipynb_file__")
    if path:
        return f"notebook:{path}"
    connection_file = (
        getattr(getattr(shell, "kernel", None), "config", {}).get("IPKernelApp", {}).get("connection_file")
    )
    return f"kernel:{connection_file}" if connection_file else f"program:{os.path.abspath(sys.argv[0] or '.')}"
