"""The text of an error of user code: first what happened, then where in the user's own lines.

Frames of this package, of the standard library and of installed packages say nothing to somebody who wrote a cell, so
only the innermost of them is kept, and only when the error came out of it.
"""

from __future__ import annotations

import os
import traceback
from typing import Final

from pi_workflows_nb.wire.identities import cap_units

MAX_CAUSES: Final = 3
MAX_FRAMES: Final = 20

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def error_text(error: BaseException) -> str:
    """Give an exception as text of at most 8,192 UTF-16 units: its message, the user's frames, and what caused it."""
    parts = [_one(error)]
    seen = {id(error)}
    for _ in range(MAX_CAUSES):
        error_before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if error_before is None or id(error_before) in seen:
            break
        word = "caused by" if error.__cause__ is not None else "while handling"
        parts.append(f"{word}: {_one(error_before)}")
        seen.add(id(error_before))
        error = error_before
    return cap_units("\n".join(parts))


def _one(error: BaseException) -> str:
    try:
        told = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
        message = "".join(told.format_exception_only()).strip()
    except Exception:  # a class of the user's whose own parts raise
        return type(error).__name__
    message = _plain_name(error, message)
    frames = [frame for frame in told.stack if _is_users(frame.filename)]
    if told.stack and frames and not _is_ours(told.stack[-1].filename) and told.stack[-1] is not frames[-1]:
        frames.append(told.stack[-1])
    if not frames:
        return message
    left_out = len(frames) - MAX_FRAMES
    if left_out > 0:
        frames[:left_out] = []
    lines = ["Traceback (most recent call last):"]
    if left_out > 0:
        lines.append(f"  … {left_out} frames before these")
    lines += [line.rstrip("\n") for line in traceback.StackSummary.from_list(frames).format()]
    return "\n".join((cap_units(message, 4096), *lines))


def _plain_name(error: BaseException, message: str) -> str:
    # Whoever reads a run's error knows our classes by their short names.
    module = type(error).__module__
    if module.startswith("pi_workflows_nb."):
        return message.removeprefix(f"{module}.")
    return message


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE)


def _is_users(filename: str) -> bool:
    if filename.startswith((_PACKAGE, "<frozen ")):
        return False
    if any(folder in filename for folder in _INSTALLED):
        return False
    return not filename.startswith(_STANDARD)
