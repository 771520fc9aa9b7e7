"""Canonical JSON: one value, one text, so that digests of values mean something.

The text is what ECMAScript's `JSON.stringify` gives for an object whose keys were inserted in the order of their UTF-16
code units: keys that look like array indices come first, ascending by number, then the rest; numbers stand in
ECMAScript's shortest form; nothing but quotes, backslashes, control characters and lone surrogates is escaped.

Nearly every value is plain enough that msgspec's C encoder writes these very bytes. `_is_plain` proves that for a
value, and all others go through `_write`, which is exact and some twenty times slower.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

import msgspec
import rfc8785

from .errors import NotJsonError, ProtocolError

MAX_DEPTH: Final = 500
"""Nested containers. A fixed number, so that what one process could write no other fails to read."""

MAX_INTEGER: Final = 2**53 - 1
"""Beyond it a double, which is what every reader of the file makes of a number, loses digits."""

_Path = tuple[Any, ...]  # (parent's path, key or index); a chain, so that going down costs one tuple

_fast_encode: Final = msgspec.json.Encoder(order="sorted").encode
_fast_decode: Final = msgspec.json.Decoder().decode
_DIGITS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_NUMBER: Final = b"0" * 16


def encode(value: Any) -> bytes:
    """Give the canonical JSON of `value` as UTF-8.

    Takes None, bool, int, float, str, list, tuple and dict with str keys. Everything else, numbers that are not
    finite, integers beyond ±(2**53 - 1) and more than 500 levels raise `NotJsonError`, which names the place as
    `$.rows[3].when`.
    """
    try:
        if _is_plain(value, 0):
            return _fast_encode(value)
    except UnicodeEncodeError:
        pass  # a surrogate somewhere, which the exact way joins or escapes
    except RecursionError:
        _out_of_stack()
    return _encode_exactly(value)


def decode(data: bytes | memoryview) -> Any:
    """Read JSON text as ECMAScript's `JSON.parse` does.

    Integers beyond ±(2**53 - 1) become float, of equal keys the last one wins. Text that is not JSON, not UTF-8, nested
    too deeply or holds a number too large for a double raises `NotJsonError`.
    """
    data = bytes(data)
    try:
        doubtful = _LONG_NUMBER in data.translate(_DIGITS)
        value = _fast_decode(data)
        if not doubtful or not _has_doubtful_number(value):
            return value
        del value
    except msgspec.DecodeError:
        pass  # broken, or a lone surrogate; the slow reader knows which
    except RecursionError:
        _out_of_stack()
    try:
        return json.loads(
            data.decode("utf-8"), parse_int=_read_integer, parse_float=_read_float, parse_constant=_refuse_constant
        )
    except RecursionError:
        _out_of_stack()
    except NotJsonError:
        raise
    except ValueError as error:
        raise NotJsonError(f"this text is not JSON: {error}") from None


def check(data: bytes) -> Any:
    """Read a frame that must already be canonical; `ProtocolError` when one byte differs."""
    try:
        value = decode(data)
        again = encode(value)
    except NotJsonError as error:
        raise ProtocolError(f"A frame is not canonical JSON: {error}") from None
    if again != data:
        raise ProtocolError("A frame is JSON, but not in canonical form (key order, white space, numbers or escapes).")
    return value


def _has_doubtful_number(value: Any) -> bool:
    """Whether a number is in it that two readers could take differently; most long rows of digits stand in texts."""
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is list:
            stack.extend(item)
        elif kind is dict:
            stack.extend(item.values())
        elif kind is float or (kind is int and not -MAX_INTEGER < item < MAX_INTEGER):
            return True
    return False


def _is_plain(value: Any, depth: int) -> bool:
    """Tell whether the C encoder's bytes for `value` are canonical; subclasses of the plain types never count."""
    kind = type(value)
    if kind is dict:
        if depth >= MAX_DEPTH:
            return False
        for key, item in value.items():
            # A leading digit may make an array index; from U+E000 on code points and UTF-16 units order differently.
            if type(key) is not str or "0" <= key < ":" or (not key.isascii() and max(key) > "\ud7ff"):
                return False
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list or kind is tuple:
        if depth >= MAX_DEPTH:
            return False
        for item in value:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if not _is_plain(item, depth + 1):
                return False
        return True
    if kind is int:
        return bool(-MAX_INTEGER <= value <= MAX_INTEGER)
    if kind is float:
        # Outside this range, and for whole numbers, the two notations differ.
        return bool(1e-4 <= abs(value) < 1e16) and not value.is_integer()
    return kind is str or value is None or kind is bool


def _encode_exactly(value: Any) -> bytes:
    parts: list[str] = []
    try:
        _write(value, parts, (), 0)
    except RecursionError:
        _out_of_stack()
    text = "".join(parts)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _join_surrogates(text).encode("utf-8", "backslashreplace")


def _write(value: Any, parts: list[str], path: _Path, depth: int) -> None:
    if isinstance(value, str):
        parts.append(encode_basestring(value))
    elif value is None:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise NotJsonError(
                f"the integer {_shown(value)} is beyond ±(2**53 - 1) and would lose digits; use a string", _spell(path)
            )
        parts.append(int.__repr__(value))
    elif isinstance(value, float):
        parts.append(_number(value, path))
    elif isinstance(value, (list, tuple)):
        if depth >= MAX_DEPTH:
            _too_deep(path)
        parts.append("[")
        for index, item in enumerate(value):
            if index:
                parts.append(",")
            _write(item, parts, (path, index), depth + 1)
        parts.append("]")
    elif isinstance(value, dict):
        if depth >= MAX_DEPTH:
            _too_deep(path)
        parts.append("{")
        for index, (key, item) in enumerate(_in_order(value, path)):
            parts.append("," if index else "")
            parts.append(encode_basestring(key))
            parts.append(":")
            _write(item, parts, (path, key), depth + 1)
        parts.append("}")
    else:
        kind = type(value)
        raise NotJsonError(f"a value of type {kind.__module__}.{kind.__qualname__} is not JSON", _spell(path))


def _in_order(value: dict[Any, Any], path: _Path) -> list[tuple[str, Any]]:
    indices: list[tuple[int, str, Any]] = []
    others: list[tuple[bytes, str, Any]] = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJsonError(f"the key {_shown(key)} is a {type(key).__name__}; keys must be str", _spell(path))
        if _is_index(key):
            indices.append((int(key), key, item))
        else:
            others.append((key.encode("utf-16-be", "surrogatepass"), key, item))
    indices.sort(key=_rank)
    others.sort(key=_rank)
    for before, after in pairwise(others):
        if before[0] == after[0]:
            raise NotJsonError("two keys differ only in how their surrogates are written", _spell(path))
    return [(key, item) for _, key, item in indices] + [(key, item) for _, key, item in others]


def _rank(entry: tuple[Any, str, Any]) -> Any:
    return entry[0]


def _is_index(key: str) -> bool:
    return (
        0 < len(key) <= 10
        and key.isascii()
        and key.isdigit()
        and (key[0] != "0" or key == "0")
        and int(key) <= 4294967294
    )


def _number(value: float, path: _Path) -> str:
    number = float(value)
    if not math.isfinite(number):
        raise NotJsonError(f"{number} is not a finite number, and JSON has no other", _spell(path))
    if number.is_integer() and abs(number) <= MAX_INTEGER:
        return str(int(number))
    return rfc8785.dumps(number).decode("ascii")


def _join_surrogates(text: str) -> str:
    """Make one character of each pair, and leave the lone ones alone."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _read_integer(text: str) -> int | float:
    if len(text) < 16:
        return int(text)
    number = _read_float(text)
    return int(text) if abs(number) < MAX_INTEGER or text.lstrip("-") == str(MAX_INTEGER) else number


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJsonError(f"the number {_shown(text)} is too large for a double")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise NotJsonError(f"{text} is not a finite number, and JSON has no other")


def _too_deep(path: _Path) -> NoReturn:
    message = f"nested deeper than {MAX_DEPTH} levels, or a container that holds itself"
    raise NotJsonError(message, _spell(path)) from None


def _out_of_stack() -> NoReturn:
    raise NotJsonError("nested too deeply for what is left of this thread's stack") from None


def _shown(value: object) -> str:
    try:
        text = str(value) if isinstance(value, (str, float)) else repr(value)
    except Exception:  # a repr of somebody else's, or an integer too long to print
        return "…"
    return text if len(text) <= 40 else text[:40] + "…"


def _spell(path: _Path) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else _spell_key(step))
    if len(steps) > 40:
        steps[20:-20] = ["…"]
    return "$" + "".join(reversed(steps))


def _spell_key(key: str) -> str:
    return f".{key}" if key.isidentifier() and len(key) <= 80 else f"[{json.dumps(_shown(key))}]"
