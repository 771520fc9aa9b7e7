"""JupyterLab on copies of the teaching notebooks, in a folder of the person's choice."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..wire.errors import NotFoundError, StateFileError
from .carried import QUICKSTART, folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER: Final = "pi-workflows-nb-notebooks"


def open_lab(target: Path, arguments: Sequence[str] = ()) -> NoReturn:
    """Copy the notebooks into `target` and become JupyterLab there, which gets `arguments` as well.

    `NotFoundError` when JupyterLab is not installed, `StateFileError` when the folder cannot be written.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise NotFoundError(
            "JupyterLab is not installed here: run pip install '.[lab]' in the folder that you installed from"
        )
    for line in copy_notebooks(target):
        print(line)
    _trust_untouched(target)
    sys.stdout.flush()
    os.chdir(target)
    opened = f"--LabApp.default_url=/lab/tree/{QUICKSTART}"
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", opened, *arguments])


def copy_notebooks(target: Path) -> Iterator[str]:
    """Copy what is not there yet, and tell in lines of text what was done.

    A file that differs from the one carried is the person's own and stays as it is. `StateFileError` when the folder
    cannot be written.
    """
    source = folder()
    copied, kept = 0, []
    for path in sorted(path for path in source.rglob("*") if path.is_file() and _is_for_people(path, source)):
        place = target / path.relative_to(source)
        try:
            if place.exists():
                if place.read_bytes() != path.read_bytes():
                    kept.append(path.relative_to(source))
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        except OSError as error:
            raise StateFileError(f"{place} cannot be written ({error.strerror}): name another folder") from error
        copied += 1
    yield f"{copied} files copied to {target}" if copied else f"the notebooks are in {target}"
    for name in kept:
        yield f"{name} was changed there and is left as it is; rename it to get the original"


def _trust_untouched(target: Path) -> None:
    """Tell Jupyter that outputs which came with the package may be shown as they are, drawings included."""
    nbformat: Any = importlib.import_module("nbformat")
    source = folder()
    notary = importlib.import_module("nbformat.sign").NotebookNotary()
    try:
        for path in source.glob("*.ipynb"):
            if path.read_bytes() == (target / path.name).read_bytes():
                notary.sign(nbformat.read(path, as_version=4))
    finally:
        notary.store.close()


def _is_for_people(path: Path, source: Path) -> bool:
    parts = path.relative_to(source).parts
    return not any(part.startswith((".", "__")) for part in parts) and path.suffix in {".ipynb", ".png", ".svg", ".md"}
