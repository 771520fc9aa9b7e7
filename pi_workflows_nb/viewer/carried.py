"""The teaching notebooks that the package carries, as files and as the definitions in them."""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any, Final

from ..wire.errors import NotFoundError

QUICKSTART: Final = "01_quickstart.ipynb"
DEFINITION: Final = "definition"


def folder() -> Path:
    """The folder with the notebooks: inside an installed package, or beside the package in a checkout.

    `NotFoundError` when neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_notebooks", package.parent / "notebooks"):
        if (candidate / QUICKSTART).is_file():
            return candidate
    raise NotFoundError("the notebooks are not part of this installation: install the package again from its source")


def definitions(path: Path) -> dict[str, Any]:
    """What the cells of a notebook define that are tagged `definition`, by name.

    The cells are run here, in order, as the kernel would run them; other cells are left out.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if DEFINITION in cell["metadata"].get("tags", ())]
    text = "\n\n".join(["import pi_workflows_nb as pw", *texts])
    shown = f"<{path.name}>"
    linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    # Under this name functions travel to a runner by value, as those of a notebook do.
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, shown, "exec", dont_inherit=True), names)  # noqa: S102 - our own notebook, as shipped
    return names
