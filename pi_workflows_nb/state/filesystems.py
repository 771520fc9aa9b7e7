"""On what a path lies: SQLite's locks and shared memory hold on local filesystems alone."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NETWORK: Final = re.compile(
    r"nfs.*|cifs|smb.*|9p|afs|ceph|lustre|gpfs|beegfs.*|glusterfs|ncpfs|davfs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|rclone|glusterfs|ceph|davfs.*|goofys|blobfuse.*|mount-s3|smb.*|nfs.*)"
)
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def network_filesystem(path: Path, mounts: str | None = None) -> str | None:
    """Give the kind of the network filesystem that a path lies on (or would), None on a local one.

    `mounts` as for `filesystem_of`; where nothing is known every path counts as local.
    """
    kind = filesystem_of(path, mounts)
    return kind if kind is not None and _NETWORK.fullmatch(kind) else None


def filesystem_of(path: Path, mounts: str | None = None) -> str | None:
    """Give the kind of filesystem that a path lies on (or would), such as `ext4`; None where the system does not say.

    `mounts` is a table in the form of /proc/self/mountinfo, by default that one.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    kind, length = None, -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 8 or "-" not in fields[6:]:
            continue
        point = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), fields[4])
        # The last of several mounts on one point hides the others.
        if len(point) >= length and (path == Path(point) or os.fspath(path).startswith(point.rstrip("/") + "/")):
            kind, length = fields[fields.index("-", 6) + 1], len(point)
    return kind
