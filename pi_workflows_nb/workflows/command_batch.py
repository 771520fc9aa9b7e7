"""Many commands at a time, for an action that runs more than one."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final

from pi_workflows_nb.wire.errors import CommandFailed, WorkflowDefinitionError
from pi_workflows_nb.workflows.shell import MAX_OUTPUT_CHARS, Command, check_command, run_shell

MOST_ITEMS: Final = 64
MOST_AT_A_TIME: Final = 8
LONGEST_SECONDS: Final = 3600.0
ERROR_CHARACTERS: Final = 2000
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_KEYS: Final = ("id", "command", "args", "cwd", "env", "stdin", "timeout", "max_output_chars")
_LOOK_SECONDS: Final = 0.05
_NEVER_STARTED: Final[dict[str, Any]] = {
    "stdout": "",
    "stderr": "",
    "exitCode": None,
    "signal": None,
    "durationMs": 0,
    "stdoutTruncated": False,
    "stderrTruncated": False,
}


def run_command_batch(
    items: Iterable[Mapping[str, Any]],
    max_concurrency: int = MOST_AT_A_TIME,
    on_item_settled: Callable[[dict[str, Any]], object] | None = None,
    *,
    cancelled: threading.Event | None = None,
) -> list[dict[str, Any]]:
    """Run commands, so many at a time, and give their results in the order of the items.

    An item is a dict with an `id` of its own (letters, digits and `._:-`, at most 64) and `command`, and optionally
    `args`, `cwd` (absolute), `env`, `stdin`, `timeout` (seconds, an hour at most and by default) and `max_output_chars`
    (of each stream, 1,000,000 at most and by default), as in `pw.shell`. There may be 64, and 8 at a time.

    A result is a dict with `id`, `outcome` (`succeeded`, `failed`, `timedOut` or `cancelled`), `error` (a text of at
    most 2,000 characters, None after a success) and what `pw.shell` gives: `stdout`, `stderr`, `exitCode`, `signal`,
    `durationMs`, `stdoutTruncated`, `stderrTruncated`. `on_item_settled` is called with each of them as it comes, on
    the caller's thread. After `cancelled` (give `ctx.cancelled`) is set, what runs is ended with all it has started,
    and nothing more starts; so it is when `on_item_settled` raises, whose error is then raised here.

    Raises WorkflowDefinitionError, naming the item and the fix, before any command starts.
    """
    commands = _checked(items)
    if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int):
        raise _wrong(f"max_concurrency={max_concurrency!r}; it is a whole number from 1 to {MOST_AT_A_TIME}")
    if not 1 <= max_concurrency <= MOST_AT_A_TIME:
        raise _wrong(f"max_concurrency={max_concurrency}; it is a whole number from 1 to {MOST_AT_A_TIME}")
    stop = threading.Event()
    with ThreadPoolExecutor(max_concurrency, thread_name_prefix="command") as pool:
        try:
            running = [pool.submit(_run, name, command, stop) for name, command in commands]
            _follow(running, stop, cancelled, on_item_settled)
        finally:
            stop.set()
    return [future.result() for future in running]


def _follow(
    running: list[Future[dict[str, Any]]],
    stop: threading.Event,
    cancelled: threading.Event | None,
    on_item_settled: Callable[[dict[str, Any]], object] | None,
) -> None:
    left = set(running)
    while left:
        settled, left = wait(left, _LOOK_SECONDS, FIRST_COMPLETED)
        if cancelled is not None and cancelled.is_set():
            stop.set()
        for future in settled:
            result = future.result()
            if on_item_settled is not None:
                on_item_settled(result)


def _run(name: str, command: Command, stop: threading.Event) -> dict[str, Any]:
    result, error = None, None
    try:
        result, outcome = run_shell(command, timeout=None, cancelled=stop), "succeeded"
    except TimeoutError as late:
        outcome, error = "timedOut", str(late)
    except CommandFailed as failed:
        stopped = stop.is_set() and (failed.result is None or failed.result["exitCode"] is None)
        result, error, outcome = failed.result, str(failed), "cancelled" if stopped else "failed"
    if error is not None and len(error) > ERROR_CHARACTERS:
        error = error[: ERROR_CHARACTERS - 1] + "…"
    return {"id": name, "outcome": outcome, "error": error, **(result or _NEVER_STARTED)}


def _checked(items: Iterable[Mapping[str, Any]]) -> list[tuple[str, Command]]:
    given = list(items)
    if len(given) > MOST_ITEMS:
        raise _wrong(f"{len(given)} items; there may be {MOST_ITEMS}, so run them in several batches")
    commands: dict[str, Command] = {}
    for position, item in enumerate(given):
        name, command = _checked_item(position, item)
        if name in commands:
            raise _wrong(f"two items have the id {name!r}; give each one of its own")
        commands[name] = command
    return list(commands.items())


def _checked_item(position: int, item: object) -> tuple[str, Command]:
    if not isinstance(item, Mapping):
        raise _wrong(f"item {position} is {item!r}; give a dict, as {{'id': 'a', 'command': 'git', 'args': ['log']}}")
    for key in item:
        if key not in _KEYS:
            raise _wrong(f"item {position} has the unknown key {key!r}; the keys are {', '.join(_KEYS)}")
    name = item.get("id")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise _wrong(f"item {position} has id={name!r}; an id is 1 to 64 letters, digits and ._:-, and begins with one")
    label = f"run_command_batch: item {name!r}"
    command = check_command({"timeout": LONGEST_SECONDS, **{k: v for k, v in item.items() if k != "id"}}, label)
    if command.cwd is not None and not os.path.isabs(command.cwd):
        raise WorkflowDefinitionError(f"{label}: cwd={command.cwd!r}; give an absolute path")
    if command.timeout is None or command.timeout > LONGEST_SECONDS:
        raise WorkflowDefinitionError(f"{label}: timeout={command.timeout!r}; seconds, at most {LONGEST_SECONDS:g}")
    if command.max_output_chars > MAX_OUTPUT_CHARS:
        raise WorkflowDefinitionError(f"{label}: max_output_chars may be {MAX_OUTPUT_CHARS:,} at most")
    return name, command


def _wrong(what: str) -> WorkflowDefinitionError:
    return WorkflowDefinitionError(f"run_command_batch: {what}")
