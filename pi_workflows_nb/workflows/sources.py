"""The source of a workflow, frozen: everything a run needs of the code, as one JSON value.

A frozen source is a dict with `python` (such as `3.11`), `text` (source code, or None where Python cannot tell it),
`pickle` (base64, or None) and `mac`. A workflow that was built in cells travels in the pickle, and the text is there to
be read; one that came from a file or a `%%workflow` cell is its text, and the pickle holds at most the agent.

Of workflows that it includes by name or path, `mounts` holds type, ref, revision, name and text by mount path; it is
left out where there are none.

`mac` tells whether this user, on this machine, made the source. `load` runs code, so whoever calls it has looked at the
`mac` first.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import linecache
import os
import pickle
import secrets
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import PiWorkflowsError, SourceError
from pi_workflows_nb.workflows.captures import Captures, Packed, pack
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.discovery import text_digest
from pi_workflows_nb.workflows.nodes import Node, Shell
from pi_workflows_nb.workflows.snapshot import definition_digest, definition_snapshot

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
KEY_FILE: Final = "source-signing.key"
KEY_BYTES: Final = 32
T = TypeVar("T")


@dataclass(frozen=True)
class LoadedSource:
    """A workflow and an agent, ready to be called; each None when the source does not hold it."""

    workflow: Workflow | None
    agent: Callable[..., Any] | None


def freeze(
    workflow: Workflow | None,
    *,
    text: str | None = None,
    agent: Callable[..., Any] | None = None,
    project: Path | None = None,
) -> dict[str, Any]:
    """Freeze a workflow object, or the text of a file or cell that makes one, and optionally an agent.

    Takes either a workflow or a text (neither, to freeze an agent alone), and the project's folder, the current one
    unless given, whose modules travel by value. Gives a frozen source with an empty `mac`; `sign` fills it.
    Raises SourceError, naming the variable, when something cannot be shipped or is larger than 1 MiB.
    """
    if workflow is not None and text is not None:
        raise SourceError("a workflow is frozen as an object or as a text, not both; leave one of them out")
    packed = None
    if workflow is not None or agent is not None:
        packed = _pack(workflow, agent, project)
    return _frozen(text if workflow is None else _text_of(_owners(workflow)), packed)


def freeze_object(thing: object, labels: Mapping[int, str], *, project: Path | None = None) -> dict[str, Any]:
    """Freeze whatever a server of this project loads in its children; `load_object` brings it to life.

    Takes the functions it holds with the names by which errors call them, by id. Errors as `freeze`.
    """
    packed = pack({"object": thing}, labels=dict(labels), project=project or Path.cwd())
    return _frozen(_text_of([value for value in vars(thing).values() if callable(value)]), packed)


def _frozen(text: str | None, packed: Packed | None) -> dict[str, Any]:
    return {"python": PYTHON, "text": text, "pickle": None if packed is None else _armour(packed), "mac": ""}


def captures(workflow: Workflow, *, project: Path | None = None) -> Captures:
    """Tell what the functions of a workflow carry along; raises SourceError for what `freeze` would refuse."""
    return _pack(workflow, None, project).captures


def sign(frozen: dict[str, Any], key: bytes) -> dict[str, Any]:
    """Put the HMAC-SHA-256 (hex) of python, text and pickle into `frozen`, under `mac`, and give it back."""
    frozen["mac"] = _mac(frozen, key)
    return frozen


def verify_mac(frozen: Mapping[str, Any], key: bytes) -> bool:
    """Whether a frozen source was signed with this key and not changed since."""
    mac = frozen.get("mac")
    return isinstance(mac, str) and mac.isascii() and hmac.compare_digest(mac, _mac(frozen, key))


def signing_key(home: Path) -> bytes:
    """Give the key of the state folder `home` (32 bytes), made at the first call, readable by its owner alone.

    Processes that make it at the same moment get the same. Raises SourceError when the folder cannot be written or
    what lies there is not a key.
    """
    path = home / KEY_FILE
    try:
        if not path.exists():
            _make_key(home, path)
        key = path.read_bytes()
    except OSError as error:
        raise SourceError(f"the key that signs sources, {path}, cannot be made or read: {error}") from error
    if len(key) != KEY_BYTES:
        raise SourceError(f"{path} is not a key that signs sources; move it away, and a new one is made")
    return key


def source_identity(workflow: Workflow, frozen: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Give the identity `{"type", "ref", "revision"}` of a workflow that was built in cells.

    Its `ref` is `inline:NAME`, its revision (hex) the SHA-256 of the frozen source's text, or the digest of the
    definition where there is no text: never of the pickle, which differs between processes for the same cells. Files
    and `%%workflow` cells have theirs from `discovery.find`.
    """
    text = None if frozen is None else frozen.get("text")
    revision = definition_digest(definition_snapshot(workflow)).hex() if text is None else text_digest(text)
    return {"type": "file", "ref": f"inline:{workflow.name}", "revision": revision}


def load(frozen: Mapping[str, Any], *, name: str | None = None, filename: str | None = None) -> LoadedSource:
    """Bring a frozen source to life. This runs the code in it.

    Takes the frozen source; for one that is text also the `name` of the workflow wanted, if the text makes several, and
    the file name that tracebacks should show. Raises SourceError when the source is damaged, was pickled by another
    Python, fails when it is run, or holds no workflow or several.
    """
    text, packed = frozen.get("text"), frozen.get("pickle")
    workflow: Workflow | None = None
    agent: Callable[..., Any] | None = None
    if packed is not None:
        held = _unpack(packed, frozen.get("python"))
        workflow, agent = held["workflow"], held["agent"]
    if workflow is None and isinstance(text, str):
        workflow = load_text(text, name=name, filename=filename)
    return LoadedSource(workflow, agent)


def load_object(frozen: Mapping[str, Any]) -> Any:
    """Bring what `freeze_object` froze to life; None where the source is a text alone. This runs code."""
    packed = frozen.get("pickle")
    return None if packed is None else _unpack(packed, frozen.get("python"))["object"]


def load_text(text: str, *, name: str | None = None, filename: str | None = None) -> Workflow:
    """Run the text of a workflow file in a module of its own and give the workflow it makes.

    Takes the workflow's name, which decides between several, and the file name for tracebacks. Raises SourceError, with
    the line, when the text cannot be compiled or run, or holds no workflow or several.
    """
    return load_kind(text, _WORKFLOW, name=name, filename=filename)


@dataclass(frozen=True)
class Sought(Generic[T]):
    """What a text is to make: its class, what it is called, and a line that makes one."""

    type: type[T]
    word: str
    example: str


_WORKFLOW: Final = Sought(Workflow, "workflow", "wf = pw.Workflow('name', start_at='first')")


def load_kind(text: str, sought: Sought[T], *, name: str | None = None, filename: str | None = None) -> T:
    """As `load_text`, for whatever a text is to make; it has a `name`."""
    revision = text_digest(text)
    shown = filename or f"<{sought.word} {name or revision[:12]}>"
    _show_lines(shown, text)
    module = ModuleType(f"pi_workflows_source_{revision[:16]}")
    module.__file__ = shown
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, shown, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        return _only(module, name, sought)
    except BaseException as error:
        sys.modules.pop(module.__name__, None)
        if not isinstance(error, Exception | SystemExit):
            raise
        raise _failed(shown, error, sought.word) from error


def _failed(shown: str, error: BaseException, word: str) -> SourceError:
    if isinstance(error, SyntaxError) and error.filename == shown:
        return SourceError(f"{shown}, line {error.lineno}: {error.msg}; a {word}'s source is plain Python")
    if isinstance(error, PiWorkflowsError):
        return SourceError(f"{_place(shown, error)}: {error}")
    return SourceError(f"{_place(shown, error)}: running it raised {type(error).__name__}: {error}")


def _pack(workflow: Workflow | None, agent: Callable[..., Any] | None, project: Path | None) -> Packed:
    labels = {} if workflow is None else dict(_labels(workflow))
    if agent is not None:
        labels.setdefault(id(agent), "the agent")
    return pack({"workflow": workflow, "agent": agent}, labels=labels, project=project or Path.cwd())


def _armour(packed: Packed) -> str:
    whole = pickle.dumps({"code": packed.code, "lines": packed.lines}, protocol=pickle.HIGHEST_PROTOCOL)
    return base64.b64encode(whole).decode("ascii")


def _unpack(packed: object, python: object) -> dict[str, Any]:
    if python != PYTHON:
        raise SourceError(
            f"the source was frozen by Python {python} and cannot be loaded by {PYTHON}: "
            f"run it with Python {python}, or start the workflow anew"
        )
    try:
        whole = pickle.loads(base64.b64decode(str(packed), validate=True))
        for filename, lines in whole["lines"].items():
            _show_lines(filename, lines)
        held: dict[str, Any] = pickle.loads(whole["code"])
        return held
    except ModuleNotFoundError as error:
        raise SourceError(
            f"the source needs the module {error.name!r}, which the runner cannot import: "
            "install it where the server's Python finds it, or keep the module in the project's folder"
        ) from error
    except Exception as error:
        raise SourceError(f"the source cannot be loaded: {type(error).__name__}: {error}") from error


def _mac(frozen: Mapping[str, Any], key: bytes) -> str:
    covered = {field: frozen.get(field) for field in ("python", "text", "pickle")}
    if "mounts" in frozen:
        covered["mounts"] = frozen["mounts"]
    return hmac.new(key, canonical_json.encode(covered), hashlib.sha256).hexdigest()


def _make_key(home: Path, path: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = home / f".{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # A link appears with its whole content, and only for the first who makes it.
        os.link(whole, path)
    except FileExistsError:
        pass
    finally:
        whole.unlink()


def _show_lines(filename: str, text: str) -> None:
    # Without a time of change `linecache.checkcache` leaves the entry alone, whatever lies at that path here.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)


def _place(shown: str, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == shown]
    return f"{shown}, line {lines[-1]}" if lines else shown


def _only(module: ModuleType, name: str | None, sought: Sought[T]) -> T:
    made = {id(value): value for value in vars(module).values() if isinstance(value, sought.type)}
    found = list(made.values())
    if len(found) > 1 and name is not None:
        found = [one for one in found if one.name == name] or found  # type: ignore[attr-defined]
    if len(found) == 1:
        return found[0]
    if not found:
        raise SourceError(f"no {sought.word} is made; it needs a line such as {sought.example}")
    names = ", ".join(repr(one.name) for one in found)  # type: ignore[attr-defined]
    raise SourceError(f"several {sought.word}s are made ({names}); keep one, or ask for one of them by its name")


def _callbacks(node: Node) -> Iterator[Any]:
    yield node.fn
    if isinstance(node, Shell):
        yield from (node.exec, node.parse, node.updates and node.updates.parse_line)
    yield node.validate
    yield node.timeout
    if node.effect is not None:
        yield node.effect.request


def _labels(workflow: Workflow) -> Iterator[tuple[int, str]]:
    for owner, label in _code(workflow, "", ()):
        if callable(owner):
            yield id(owner), label


def _owners(workflow: Workflow) -> list[Any]:
    return [owner for owner, _ in _code(workflow, "", ())]


def _code(workflow: Workflow, path: str, around: tuple[int, ...]) -> Iterator[tuple[Any, str]]:
    """Everything of a workflow, and of those it holds, that may be code, with what it is."""
    for node in workflow.nodes.values():
        for callback in _callbacks(node):
            yield callback, f"node {path + node.name!r}"
    for field in ("input", "title"):
        yield getattr(workflow, field), f"the {field} of the workflow" + (f" mounted as {path[:-1]!r}" if path else "")
    if workflow.settings is not None:
        for field in ("initial", "parse", "validate_change"):
            yield getattr(workflow.settings, field), f"the settings ({field}) of the workflow"
    for name, way in workflow.exits.items():
        yield way.validate, f"exit {path + name!r}"
    for name, included in workflow.includes.items():
        yield included.input, f"include {path + name!r}"
        yield included.settings, f"the settings of include {path + name!r}"
        if isinstance(included.workflow, Workflow) and id(included.workflow) not in around:
            yield from _code(included.workflow, f"{path}{name}/", (*around, id(workflow)))


def _text_of(owners: list[Any]) -> str | None:
    found: dict[str, None] = {}
    for owner in owners:
        if callable(owner):
            try:
                found.setdefault(textwrap.dedent(inspect.getsource(owner)).rstrip("\n"))
            except (OSError, TypeError):
                pass  # made by exec, built in, or an object: Python cannot tell
    return "\n\n\n".join(found) + "\n" if found else None
