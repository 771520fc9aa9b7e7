"""Updates that a shell node reads out of the lines of its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pi_workflows_nb.wire.errors import UpdateError, WorkflowDefinitionError

MAX_LINE_BYTES: Final = 64 << 10
STREAMS: Final = ("stdout", "stderr")
_END: Final = re.compile(rb"[\r\n]")

ParseLine = Callable[[str], Any]


@dataclass(frozen=True)
class ShellUpdates:
    """`parse_line` is called with each line of `streams`; see `shell_updates`."""

    parse_line: ParseLine
    streams: tuple[str, ...] = ("stdout",)


def shell_updates(parse_line: ParseLine, *, streams: Iterable[str] = ("stdout",)) -> ShellUpdates:
    """Have a shell node publish what its command prints: `wf.shell(…, updates=pw.shell_updates(parse_line))`.

    `parse_line` is called with every line that is not empty, as text without its end (a carriage return ends a line,
    too), while the command runs. It gives None, one update as a tuple `(type, key, data)`, or a list of such; they are
    published as `ctx.publish_update` does. `streams` are `"stdout"`, `"stderr"` or both. A line of more than 64 KiB,
    one that is not UTF-8, and an error of `parse_line` end the command and fail the node.

    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    from pi_workflows_nb.workflows.nodes import check_callback

    check_callback("pw.shell_updates", parse_line, gives="None or an update (type, key, data)", takes="line")
    chosen = (streams,) if isinstance(streams, str) else tuple(streams)
    if not chosen or not set(chosen) <= set(STREAMS):
        raise WorkflowDefinitionError(f"pw.shell_updates: streams={streams!r}; they are 'stdout', 'stderr', or both")
    return ShellUpdates(parse_line, chosen)


class LineReader:
    """Cuts the bytes of one stream into lines and gives each to `use`."""

    def __init__(self, stream: str, use: Callable[[str], None]) -> None:
        self._stream = stream
        self._use = use
        self._parts: list[bytes] = []
        self._length = 0
        self._count = 0

    def take(self, data: bytes) -> None:
        """Take the next bytes; none mean the end. `UpdateError` for what is no line, and whatever `use` raises."""
        *lines, rest = _END.split(data) if data else (b"", b"")
        for line in lines:
            self._give(b"".join((*self._parts, line)))
            self._parts, self._length = [], 0
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > MAX_LINE_BYTES:
            self._give(b"".join(self._parts))

    def _give(self, line: bytes) -> None:
        if not line:
            return
        self._count += 1
        where = f"line {self._count} of {self._stream}"
        if len(line) > MAX_LINE_BYTES:
            raise UpdateError(f"{where} has more than {MAX_LINE_BYTES:,} bytes, the most that is read for updates")
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise UpdateError(f"{where} is not UTF-8 ({error.reason} at byte {error.start})") from None
        self._use(text)


def updates_of(parsed: Any) -> list[tuple[Any, Any, Any]]:
    """The updates that `parse_line` gave; `UpdateError` for anything else."""
    if parsed is None:
        return []
    given = parsed if isinstance(parsed, list) else [parsed]
    for update in given:
        if not isinstance(update, tuple) or len(update) != 3:
            raise UpdateError(f"parse_line gave {update!r:.200}; give None, one (type, key, data), or a list of such")
    return given
