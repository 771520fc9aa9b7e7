"""Environments of the neighbours: made on first use, from pinned versions, in a cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PINNED = {
    "langgraph": ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
    "dbos": ("dbos==3.4.0",),
}


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pi-workflows-nb" / "bench"


def python_of(neighbour: str) -> Path:
    """The interpreter that can import a neighbour; takes a minute the first time."""
    packages = PINNED[neighbour]
    key = hashlib.sha256("\n".join((sys.version, *packages)).encode()).hexdigest()[:12]
    folder = cache() / f"{neighbour}-{key}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making the environment of {neighbour}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
        ready.touch()
    return python
