"""Running the command of a shell node.

A command is a dict:

| key | meaning |
|---|---|
| `command` | the program, found on PATH; no shell is involved |
| `args` | list of arguments: texts, paths or numbers |
| `cwd` | the folder to run in; the project's without it |
| `env` | dict of text that is added to the environment |
| `stdin` | text for its standard input, which is empty without it |
| `timeout` | seconds |
| `allow_nonzero_exit` | True keeps the result when the command does not end with exit code 0 |
| `max_output_chars` | how much of each stream is kept, 1,000,000 characters unless given |
"""

from __future__ import annotations

import codecs
import math
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import IO, Any, Final
from uuid import uuid4

from pi_workflows_nb.wire.errors import CommandFailed, WorkflowDefinitionError
from pi_workflows_nb.workflows.process_tree import MARK, ProcessTree
from pi_workflows_nb.workflows.shell_updates import LineReader

MAX_OUTPUT_CHARS: Final = 1_000_000
TERMINATE_SECONDS: Final = 2.0
"""How long a command may take to end after SIGTERM before it is killed."""

LINGER_SECONDS: Final = 1.0
"""How long output is awaited after the command has ended while something it started still holds its streams."""

_KEYS: Final = ("command", "args", "cwd", "env", "stdin", "timeout", "allow_nonzero_exit", "max_output_chars")
_LOOK_SECONDS: Final = 0.05
_CHUNK: Final = 1 << 16
_SHOWN_CHARS: Final = 2000


@dataclass(frozen=True)
class Command:
    """A checked command; `timeout` in seconds or None, `max_output_chars` of each stream."""

    argv: tuple[str, ...]
    cwd: str | None
    env: dict[str, str]
    stdin: str | None
    timeout: float | None
    allow_nonzero_exit: bool
    max_output_chars: int


def check_command(spec: object, label: str = "shell node") -> Command:
    """Read a command dict (see the module's text).

    Raises WorkflowDefinitionError that starts with `label` and names the key at fault and the fix.
    """
    if not isinstance(spec, Mapping):
        raise _wrong(label, f"the command is {spec!r}; give a dict, as {{'command': 'git', 'args': ['log']}}")
    for key in spec:
        if key not in _KEYS:
            raise _wrong(label, f"the command has no key {key!r}; its keys are {', '.join(_KEYS)}")
    program = spec.get("command")
    if not isinstance(program, str | os.PathLike) or not os.fspath(program):
        raise _wrong(label, f"command={program!r}; give the program to run, as 'git', and its arguments as args=[…]")
    args = spec.get("args", ())
    if not isinstance(args, list | tuple):
        raise _wrong(label, f"args={args!r}; give a list with one entry per argument, as ['log', '--oneline']")
    cwd = spec.get("cwd")
    if not (cwd is None or isinstance(cwd, str | os.PathLike)):
        raise _wrong(label, f"cwd={cwd!r}; give a folder as text, or leave it out")
    env = spec.get("env") or {}
    if not (isinstance(env, Mapping) and all(isinstance(part, str) for pair in env.items() for part in pair)):
        raise _wrong(label, f"env={env!r}; give a dict from text to text")
    stdin = spec.get("stdin")
    if not (stdin is None or isinstance(stdin, str)):
        raise _wrong(label, f"stdin is a {type(stdin).__name__}; give text, or leave it out")
    allow = spec.get("allow_nonzero_exit", False)
    if not isinstance(allow, bool):
        raise _wrong(label, f"allow_nonzero_exit={allow!r}; give True or False")
    most = spec.get("max_output_chars", MAX_OUTPUT_CHARS)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise _wrong(label, f"max_output_chars={most!r}; give a whole number of characters")
    return Command(
        argv=(_text(program, "command", label), *(_text(part, "args", label) for part in args)),
        cwd=None if cwd is None else _text(os.path.expanduser(cwd), "cwd", label),
        env=dict(env),
        stdin=stdin,
        timeout=_seconds(spec.get("timeout"), label),
        allow_nonzero_exit=allow,
        max_output_chars=most,
    )


def run_shell(
    spec: Mapping[str, Any] | Command,
    *,
    timeout: float | None,
    cancelled: threading.Event,
    on_start: Callable[[int], None] | None = None,
    clock: Callable[[], float] = monotonic,
    readers: Mapping[str, LineReader] | None = None,
) -> dict[str, Any]:
    """Run a command to its end and give its result.

    Takes the command, a limit in seconds beside the command's own (None for none), an event that ends it early, and a
    callable that is told the process id; limits are counted by `clock`. Blocks; the command stays in the process group
    of the caller. On timeout and cancellation it and all it has started get SIGTERM, and SIGKILL two seconds later; so
    they do when one of the `readers` of `stdout` and `stderr` raises, whose error is then raised.

    Gives a JSON dict: `stdout`, `stderr` (text, invalid UTF-8 replaced), `exitCode` (None after a signal), `signal`
    (name or None), `durationMs`, `stdoutTruncated`, `stderrTruncated`.

    Raises WorkflowDefinitionError for a command that is none, TimeoutError when the time ran out, and CommandFailed
    when it could not start, was cancelled, or did not end with exit code 0 (unless that is allowed).
    """
    command = spec if isinstance(spec, Command) else check_command(spec)
    shown = _shown(command)
    if cancelled.is_set():
        raise CommandFailed(f"{shown} was not started: the node is cancelled")
    limits = [limit for limit in (timeout, command.timeout) if limit is not None]
    execution = _Execution(command, shown, min(limits, default=None), clock, readers or {})
    if on_start is not None:
        on_start(execution.pid)
    try:
        ended_by = execution.follow(cancelled)
    finally:
        execution.close()
    if execution.refusal is not None:
        raise execution.refusal
    result = execution.result()
    if ended_by == "timeout":
        raise TimeoutError(f"{shown} took longer than {min(limits):g} s and was ended")
    if ended_by == "cancelled":
        raise CommandFailed(f"{shown} was ended: the node is cancelled", result)
    if result["exitCode"] != 0 and not command.allow_nonzero_exit:
        raise CommandFailed(_failure(shown, result), result)
    return result


class _Execution:
    """One running command: its process, its streams, its clock."""

    def __init__(
        self,
        command: Command,
        shown: str,
        limit: float | None,
        clock: Callable[[], float],
        readers: Mapping[str, LineReader],
    ) -> None:
        mark = uuid4().hex
        self.refusal: Exception | None = None
        self._started = monotonic()
        self._clock = clock
        self._deadline = None if limit is None else clock() + limit
        try:
            self._process = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={**os.environ, **command.env, MARK: mark},
                stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise CommandFailed(_not_started(command, shown, error)) from None
        self._duration: float | None = None
        self.pid = self._process.pid
        self._tree = ProcessTree(self.pid, mark)
        self._selector = selectors.DefaultSelector()
        most = command.max_output_chars
        self._streams = [_Stream(most, readers.get(name)) for name in ("stdout", "stderr")]
        for stream, pipe in zip(self._streams, (self._process.stdout, self._process.stderr), strict=True):
            self._watch(pipe, selectors.EVENT_READ, stream)
        self._unsent = memoryview((command.stdin or "").encode("utf-8", "surrogateescape"))
        if self._process.stdin is not None:
            self._watch(self._process.stdin, selectors.EVENT_WRITE, None)
        self._exit_fd = _exit_descriptor(self.pid)
        if self._exit_fd is not None:
            self._selector.register(self._exit_fd, selectors.EVENT_READ)

    def follow(self, cancelled: threading.Event) -> str | None:
        """Move the bytes until the command has ended; `timeout` or `cancelled` when it was made to end."""
        ended_by: str | None = None
        give_up: float | None = None
        while True:
            exited = self._has_exited()
            now = self._clock()
            if ended_by is None and not exited:
                if self.refusal is not None:
                    ended_by = "refused"
                elif cancelled.is_set():
                    ended_by = "cancelled"
                elif self._deadline is not None and now >= self._deadline:
                    ended_by = "timeout"
                if ended_by is not None:
                    self._tree.signal(signal.SIGTERM)
                    give_up = now + TERMINATE_SECONDS
            if exited and (not self._tree.members() if ended_by is not None else not self._open_outputs()):
                self._read_to_the_end()
                return ended_by
            if exited and give_up is None:
                give_up = now + LINGER_SECONDS
            if give_up is not None and now >= give_up:
                if ended_by is not None:
                    self._tree.kill()
                self._read_to_the_end()
                return ended_by
            self._move(self._patience(now, give_up, exited=exited))

    def result(self) -> dict[str, Any]:
        """The result of the ended command."""
        code = self._process.returncode
        stdout, stderr = self._streams
        return {
            "stdout": stdout.text(),
            "stderr": stderr.text(),
            "exitCode": code if code is not None and code >= 0 else None,
            "signal": signal.Signals(-code).name if code is not None and code < 0 else None,
            "durationMs": round(1000 * (self._duration or monotonic() - self._started)),
            "stdoutTruncated": stdout.truncated,
            "stderrTruncated": stderr.truncated,
        }

    def close(self) -> None:
        """Let go of all descriptors; a process that still lives (an error came between) is killed."""
        if not self._has_exited():
            self._tree.kill()
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        self._selector.close()
        if self._exit_fd is not None:
            os.close(self._exit_fd)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _has_exited(self) -> bool:
        if self._process.poll() is None:
            return False
        if self._duration is None:
            self._duration = monotonic() - self._started
            if self._exit_fd is not None:
                self._selector.unregister(self._exit_fd)
        return True

    def _watch(self, pipe: IO[bytes] | None, events: int, stream: _Stream | None) -> None:
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, events, stream)

    def _open_outputs(self) -> bool:
        return any(key.data is not None for key in self._selector.get_map().values())

    def _patience(self, now: float, give_up: float | None, *, exited: bool) -> float:
        moments = [moment for moment in (self._deadline if not exited else None, give_up) if moment is not None]
        return max(0.0, min([_LOOK_SECONDS, *(moment - now for moment in moments)]))

    def _move(self, patience: float) -> None:
        for key, _ in self._selector.select(patience):
            if key.fileobj == self._exit_fd:
                continue
            if key.data is None:
                self._write(key.fd)
                continue
            try:
                data = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            key.data.take(data)
            self._read(key.data, data)
            if not data:
                self._selector.unregister(key.fileobj)

    def _read(self, stream: _Stream, data: bytes) -> None:
        if stream.reader is None or self.refusal is not None:
            return
        try:
            stream.reader.take(data)
        except Exception as error:
            self.refusal = error

    def _read_to_the_end(self) -> None:
        """Nothing more comes, also where something that the command has left behind still holds its streams."""
        for stream in self._streams:
            self._read(stream, b"")

    def _write(self, fd: int) -> None:
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent[:_CHUNK]) :] if self._unsent else self._unsent
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = self._unsent[:0]
        if not self._unsent:
            assert self._process.stdin is not None
            self._selector.unregister(self._process.stdin)
            self._process.stdin.close()


class _Stream:
    """What is kept of one output stream: the first `most` characters."""

    def __init__(self, most: int, reader: LineReader | None) -> None:
        self.reader = reader
        self._left = most
        self._parts: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.truncated = False

    def take(self, data: bytes) -> None:
        """Take the next bytes; none mean the end."""
        if self.truncated:
            return
        text = self._decode(data, final=not data)
        if len(text) > self._left:
            self.truncated = True
            text = text[: self._left]
        self._left -= len(text)
        if text:
            self._parts.append(text)

    def text(self) -> str:
        """What was kept."""
        return "".join(self._parts)


def _exit_descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _text(part: object, key: str, label: str) -> str:
    if isinstance(part, bool) or not isinstance(part, str | os.PathLike | int | float):
        raise _wrong(label, f"{part!r} in {key} is a {type(part).__name__}; give text, a path or a number")
    text = os.fspath(part) if isinstance(part, os.PathLike) else str(part)
    if not isinstance(text, str) or "\0" in text:
        raise _wrong(label, f"{part!r} in {key} cannot be given to a program; give text without NUL characters")
    return text


def _seconds(value: object, label: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _wrong(label, f"timeout={value!r} in the command; give seconds greater than 0, or leave it out")
    return float(value)


def _wrong(label: str, what: str) -> WorkflowDefinitionError:
    return WorkflowDefinitionError(f"{label}: {what}")


def _shown(command: Command) -> str:
    line = " ".join(command.argv)
    return f"the command `{line if len(line) <= 200 else line[:199] + '…'}`"


def _not_started(command: Command, shown: str, error: Exception) -> str:
    program = command.argv[0]
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"{shown} was not started: its folder (cwd) {command.cwd!r} does not exist"
    if isinstance(error, FileNotFoundError):
        if " " in program:
            return (
                f"{shown} was not started: there is no program {program!r}. Give the program alone as command and its "
                "arguments as args=[…]; for a line of a shell use command='sh', args=['-c', line]"
            )
        return (
            f"{shown} was not started: there is no program {program!r} on the PATH of the run; "
            "install it or give its path"
        )
    return f"{shown} was not started: {error}"


def _failure(shown: str, result: dict[str, Any]) -> str:
    how = f"was ended by {result['signal']}" if result["signal"] else f"ended with exit code {result['exitCode']}"
    said = (result["stderr"].strip() or result["stdout"].strip())[-_SHOWN_CHARS:]
    return f"{shown} {how} (allow_nonzero_exit=True keeps the result){': ' + said if said else ''}"
