"""A wall clock that a test sets, for the processes that it means: libfaketime's, never the machine's."""

from __future__ import annotations

from pathlib import Path

import libfaketime

LIBRARY = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"


class WallClock:
    """Read anew at each look from a file; the monotonic clock goes on as it is, as it does where a clock is set."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.jump(0)
        self.variables = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "FAKE_STAT": "0",
            "NO_FAKE_STAT": "1",
        }

    def jump(self, seconds: int) -> None:
        """Set the clock to so many seconds from the true time. A rename, since it may be read at any moment."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.rename(self.file)
