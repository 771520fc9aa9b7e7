"""Finding a workflow or a resource manager by its name or path, and keeping the text of cells.

A name is looked for among the cells of the session, then in `.pi/workflows` of the project, then in
`~/.pi/agent/workflows`, then among the built-in ones; the first found is taken. A file `NAME.workflow.py` makes the
workflow NAME. Resource managers have folders and a suffix of their own. Nothing here runs a line of what it finds.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pi_workflows_nb.wire.errors import NotFoundError, SourceError
from pi_workflows_nb.workflows import builtins

SUFFIX: Final = ".workflow.py"
BUILTIN_PREFIX: Final = "builtin:"


@dataclass(frozen=True)
class Kind:
    """What is looked for: its `word`, its `plural`, the `suffix` of its files, and the `folder` in `.pi` they lie in.

    `builtins` are texts by name that come with the package.
    """

    word: str
    plural: str
    suffix: str
    folder: str
    builtins: Mapping[str, str]


WORKFLOWS: Final = Kind("workflow", "workflows", SUFFIX, "workflows", builtins.texts())


@dataclass(frozen=True)
class Source:
    """The text of a workflow and where it came from.

    `type` and `ref` identify the place (`builtin` and an id, or `file` and a path or `cell:NAME`); `path` is the file,
    None for a cell or a built-in.
    """

    name: str
    type: Literal["file", "builtin"]
    ref: str
    text: str
    path: Path | None = None

    @property
    def revision(self) -> str:
        """The SHA-256 (hex) of the text."""
        return text_digest(self.text)

    @property
    def identity(self) -> dict[str, str]:
        """The `{"type", "ref", "revision"}` under which a run notes where its workflow came from."""
        return {"type": self.type, "ref": self.ref, "revision": self.revision}


def text_digest(text: str) -> str:
    """The SHA-256 (hex) of a source's text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find(
    workflow: str | os.PathLike[str],
    project: Path,
    cells: Mapping[str, str] | None = None,
    *,
    home: Path | None = None,
    kind: Kind = WORKFLOWS,
) -> Source:
    """Find the source of a workflow, or of what `kind` says.

    Takes a name, `builtin:NAME`, or the path of a file (anything with a `/` or ending in `.py`; relative ones start at
    the project); the project's folder; the texts of the session's cells by name; and the folder of the user's own
    workflows, `~/.pi/agent/workflows` unless given.
    Raises NotFoundError, which lists what there is, and SourceError for a file that cannot be read as text.
    """
    wanted = os.fspath(workflow)
    if isinstance(workflow, os.PathLike) or "/" in wanted or os.sep in wanted or wanted.endswith(".py"):
        path = project / Path(wanted).expanduser()
        if not path.is_file():
            raise NotFoundError(f"there is no {kind.word} file {path}")
        return _read(_name_of(path, kind), path, kind)
    known: list[str] = []
    for name, place in _places(project, cells or {}, home, kind):
        if wanted in (name, f"{BUILTIN_PREFIX}{name}" if place is None else name):
            return _open(name, place, cells or {}, kind)
        known.append(name)
    raise NotFoundError(_not_found(wanted, sorted(set(known)), project, home, kind))


def available(
    project: Path, cells: Mapping[str, str] | None = None, *, home: Path | None = None, kind: Kind = WORKFLOWS
) -> list[str]:
    """The names `find` knows, sorted; takes the same."""
    return sorted({name for name, _ in _places(project, cells or {}, home, kind)})


def save_cell(text: str, folder: Path) -> Path:
    """Keep the text of a cell in `folder` under its SHA-256 and give the path; the same text is kept once.

    The folder is made when it is missing; both are for their owner alone.
    """
    path = folder / f"{text_digest(text)}.py"
    if path.exists():
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = folder / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    whole.replace(path)
    return path


_Place = Path | Literal["cell"] | None


def _places(project: Path, cells: Mapping[str, str], home: Path | None, kind: Kind) -> Iterator[tuple[str, _Place]]:
    for name in cells:
        yield name, "cell"
    for folder in _folders(project, home, kind):
        for path in _files(folder, kind):
            yield _name_of(path, kind), path
    for name in kind.builtins:
        yield name, None


def _files(folder: Path, kind: Kind) -> list[Path]:
    """The files of a folder that may be read: a pipe would never end, and a folder that is closed to us has none."""
    try:
        return [path for path in sorted(folder.glob(f"*{kind.suffix}")) if path.is_file()]
    except OSError:
        return []


def _folders(project: Path, home: Path | None, kind: Kind) -> tuple[Path, Path]:
    return project / ".pi" / kind.folder, home or Path.home() / ".pi" / "agent" / kind.folder


def _open(name: str, place: _Place, cells: Mapping[str, str], kind: Kind) -> Source:
    if place == "cell":
        return Source(name, "file", f"cell:{name}", cells[name])
    if place is None:
        return Source(name, "builtin", name, kind.builtins[name])
    assert isinstance(place, Path)
    return _read(name, place, kind)


def _read(name: str, path: Path, kind: Kind) -> Source:
    absolute = path.resolve()
    try:
        text = absolute.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"the {kind.word} file {absolute} cannot be read as UTF-8 text: {error}") from error
    return Source(name, "file", str(absolute), text, absolute)


def _name_of(path: Path, kind: Kind) -> str:
    return path.name.removesuffix(kind.suffix).removesuffix(".py")


def _not_found(wanted: str, known: list[str], project: Path, home: Path | None, kind: Kind) -> str:
    from difflib import get_close_matches

    own, shared = _folders(project, home, kind)
    near = get_close_matches(wanted, known, 1)
    said = f"there is no {kind.word} {wanted!r}"
    if near:
        return f"{said}; did you mean {near[0]!r}?"
    there = f"there are {', '.join(repr(name) for name in known)}"
    return (
        f"{said}; {there}. {kind.plural.capitalize()} are %%{kind.word.replace(' ', '_')} cells,"
        f" files *{kind.suffix} in {own} and {shared}, and paths of files"
    )
