"""The workflows that come with the package, each a text of its own, which a run keeps like any other source."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NAMES: Final = ("monitor", "plain-summary")


def texts() -> dict[str, str]:
    """The text of each by name."""
    folder = Path(__file__).parent
    return {name: (folder / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8") for name in NAMES}
