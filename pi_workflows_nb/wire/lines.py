"""What arrives on a stream, cut into lines."""

from __future__ import annotations

from .errors import ProtocolError
from .runner_messages import MAX_FRAME_BYTES


class Lines:
    """Cuts a stream into lines of at most `most` bytes; holds what is not a whole line yet."""

    def __init__(self, most: int = MAX_FRAME_BYTES) -> None:
        self._most = most
        self._rest = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends; `ProtocolError` when one is too long, ended or not."""
        if not self._rest and data.endswith(b"\n"):
            lines = data[:-1].split(b"\n")
        else:
            end = data.rfind(b"\n")
            if end >= 0:
                end += len(self._rest)
            self._rest += data
            lines = []
            if end >= 0:
                lines = bytes(self._rest[:end]).split(b"\n")
                del self._rest[: end + 1]
        if len(self._rest) > self._most or any(len(line) > self._most for line in lines):
            self._rest.clear()
            raise ProtocolError(f"a frame exceeds {self._most >> 20} MiB")
        return lines
