"""The widgets that front ends draw: a model of a few traits, and the script and style that show them.

The scripts lie in `front_end/` as they are executed, without a build: what all views share is put before each. They are
text of this package alone. What comes from a workflow travels in traits and messages, and is shown as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from . import wording

_FOLDER: Final = Path(__file__).with_name("front_end")


def _script(name: str) -> str:
    return "\n".join((_FOLDER / part).read_text("utf-8") for part in ("common.js", name))


def _style() -> str:
    colours = "\n".join(
        f'.pwnb [data-status="{status}"] {{ --pwnb-status: {colour}; }}' for status, colour in wording.COLOURS.items()
    )
    return f"{(_FOLDER / 'views.css').read_text('utf-8')}\n{colours}\n"


class RunWidget(anywidget.AnyWidget):
    """One run: how it stands, its newest steps, and its graph, which is sent once."""

    _esm = _script("run.js")
    _css = _style()
    picture: Any = traitlets.Dict().tag(sync=True)
    steps: Any = traitlets.List().tag(sync=True)
    graph: Any = traitlets.Dict().tag(sync=True)
