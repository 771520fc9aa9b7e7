"""Packing the functions of a workflow together with what they use of the cells and modules around them.

Functions of `__main__` and of modules that lie in the project are packed by value, everything installed by name. Each
variable that a packed function uses is tried by itself first: only so can an error name it.
"""

from __future__ import annotations

import dis
import functools
import io
import linecache
import marshal
import os
import pickle
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import cloudpickle

from pi_workflows_nb.wire.errors import PiWorkflowsError, SourceError
from pi_workflows_nb.workflows.suspicion import looks_like_a_secret

MAX_CAPTURE_BYTES: Final = 1 << 20
_OWN: Final = "pi_workflows_nb"
_ROOMS_THAT_STAY: Final = tuple(
    f"{_OWN}.{room}" for room in ("server", "client", "notebook", "viewer", "state", "runner")
)
_GLOBAL_OPERATIONS: Final = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})
_registry_lock: Final = threading.Lock()


@dataclass(frozen=True)
class Capture:
    """A variable that travels along: its pickled size in bytes, and the nodes and functions that use it.

    `secret` says that it looks like a password, a token or a private key.
    """

    name: str
    bytes: int
    used_by: tuple[str, ...]
    secret: bool = False


@dataclass(frozen=True)
class Captures:
    """What the functions of a workflow carry along."""

    variables: tuple[Capture, ...]


@dataclass(frozen=True)
class Packed:
    """The pickle, the variables in it, and the text of the files its functions come from."""

    code: bytes
    captures: Captures
    lines: dict[str, str]


def pack(value: Any, *, labels: dict[int, str], project: Path) -> Packed:
    """Pickle `value` with everything its functions use.

    Takes the names by which errors should call functions (`labels`, by id of the function) and the project's folder.
    Raises SourceError, naming the variable and who uses it, when something is larger than 1 MiB or cannot be pickled.
    """
    survey = _Survey(labels)
    sink = io.BytesIO()
    with _registry_lock, _local_modules_by_value(project):
        try:
            _SurveyingPickler(sink, survey).dump(value)
        except PiWorkflowsError:
            raise
        except Exception as error:
            raise SourceError(
                f"the workflow cannot be sent to a runner: {_reason(error)}. "
                "What a node or class holds on to must be plain data; "
                "make connections, locks and the like inside the function that uses them"
            ) from error
    return Packed(sink.getvalue(), survey.captures(), survey.lines)


class _Stays(PiWorkflowsError):
    """An object that belongs to this process."""


class _TooLarge(PiWorkflowsError):
    """More bytes than a variable may have."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle that keeps the server and its like at home, and lets code remember the file it came from."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is CodeType:
            try:
                return marshal.loads, (marshal.dumps(obj),)
            except ValueError:
                return super().reducer_override(obj)
        if isinstance(obj, functools._lru_cache_wrapper) and _travels(obj.__module__):
            # By itself it would be looked up by its name in a module that the runner does not have.
            parameters = obj.cache_parameters()
            return _cached, (obj.__wrapped__, parameters["maxsize"], parameters["typed"])
        if type(obj).__module__.startswith(_ROOMS_THAT_STAY) and not isinstance(
            obj, type | FunctionType | BaseException
        ):
            raise _Stays(f"a {type(obj).__name__} belongs to the notebook's own process")
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _travels(module: str) -> bool:
    packages = module.split(".")
    names = {".".join(packages[:depth]) for depth in range(1, len(packages) + 1)}
    return module == "__main__" or not names.isdisjoint(cloudpickle.list_registry_pickle_by_value())


class _SurveyingPickler(_Pickler):
    """Tells the survey of every function that is packed by value."""

    def __init__(self, file: Any, survey: _Survey) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._survey = survey

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if type(obj) is FunctionType and reduced is not NotImplemented:
            self._survey.visit(obj)
        return reduced


class _Survey:
    """The functions seen and the variables they use."""

    def __init__(self, labels: dict[int, str]) -> None:
        self._is_installed = _installation()
        self._labels = labels
        self._sizes: dict[tuple[str, int], int] = {}
        self._secrets: set[tuple[str, int]] = set()
        self._users: dict[tuple[str, int], list[str]] = {}
        self._kept: list[Any] = []  # ids stay unique only while their objects live
        self.lines: dict[str, str] = {}

    def visit(self, function: FunctionType) -> None:
        """Note the function's file, and try every variable it uses."""
        filename = function.__code__.co_filename
        if filename == "<string>" or self._is_installed(filename):
            return  # generated, as the methods of a dataclass are, or a library's
        if filename not in self.lines:
            text = "".join(linecache.getlines(filename, function.__globals__))
            if text:
                self.lines[filename] = text
        user = self._labels.get(id(function), f"function {function.__qualname__!r}")
        for name, value in _variables(function):
            if isinstance(value, FunctionType | type | ModuleType) or _is_own(value):
                continue
            key = (name, id(value))
            if key not in self._sizes:
                self._kept.append(value)
                self._sizes[key] = _size(value, name, user)
                if looks_like_a_secret(name, value):
                    self._secrets.add(key)
            users = self._users.setdefault(key, [])
            if user not in users:
                users.append(user)

    def captures(self) -> Captures:
        """The variables, by name."""
        found = [
            Capture(name, size, tuple(self._users[name, identity]), (name, identity) in self._secrets)
            for (name, identity), size in self._sizes.items()
        ]
        return Captures(tuple(sorted(found, key=lambda capture: capture.name)))


class _Counter(io.RawIOBase):
    """A file that counts, and ends the writing when it is too much."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.count += size
        if self.count > MAX_CAPTURE_BYTES:
            raise _TooLarge
        return size


def _size(value: Any, name: str, user: str) -> int:
    counter = _Counter()
    try:
        _Pickler(counter, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except _TooLarge:
        raise SourceError(
            f"{user} uses the variable {name!r}, which takes more than 1 MiB to send to a runner: "
            "read or make it inside the function, or give it a path or a smaller part"
        ) from None
    except _Stays as error:
        raise SourceError(
            f"{user} uses the variable {name!r}, which cannot be sent to a runner ({error}): "
            "give the node the values it needs as input, and leave the rest to the cell"
        ) from None
    except Exception as error:
        raise SourceError(
            f"{user} uses the variable {name!r} (a {type(value).__name__}), which cannot be sent to a runner: "
            f"{_reason(error)}. Make it inside the function that uses it"
        ) from error
    return counter.count


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            pass  # not assigned yet
    defaults = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _global_names(code: CodeType) -> set[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL_OPERATIONS}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _is_own(value: Any) -> bool:
    return type(value).__module__.startswith((f"{_OWN}.workflows", f"{_OWN}.resource_managers.definition"))


# Hundreds of modules are looked at for each run that is started, and nearly all of them are the same as last time.
_foreign: dict[Path, dict[str, object]] = {}


@contextmanager
def _local_modules_by_value(project: Path) -> Iterator[None]:
    before = cloudpickle.list_registry_pickle_by_value()
    registered: list[ModuleType] = []
    is_local = _locality(project)
    foreign = _foreign.setdefault(project, {})
    try:
        for name, module in list(sys.modules.items()):
            if foreign.get(name) is module or name in before:
                continue
            if not is_local(name, module):
                foreign[name] = module
            else:
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _locality(project: Path) -> Callable[[str, object], bool]:
    roots = tuple({os.path.join(str(folder), "") for folder in (project.absolute(), project.resolve())})
    is_installed = _installation()

    def is_local(name: str, module: object) -> bool:
        if not isinstance(module, ModuleType) or name.partition(".")[0] in (_OWN, "__main__"):
            return False
        # The bare dict: asking a lazily loaded module for an attribute would load it.
        named = object.__getattribute__(module, "__dict__")
        file = named.get("__file__")
        if named.get("__name__") != name or not isinstance(file, str) or not file.endswith(".py"):
            return False
        path = os.path.abspath(file)
        return path.startswith(roots) and not is_installed(path)

    return is_local


@cache
def _installation() -> Callable[[str], bool]:
    standard = tuple(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib"))
    packages = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))

    def is_installed(path: str) -> bool:
        return path.startswith(standard) or any(folder in path for folder in packages)

    return is_installed


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
