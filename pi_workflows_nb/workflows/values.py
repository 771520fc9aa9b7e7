"""From what a callback returns to JSON.

numpy and pandas are never imported here: their scalars are known by the shape of their types, so that a runner which
does not use them does not load them.
"""

from __future__ import annotations

import math
from typing import Any, Final

from pi_workflows_nb.wire.errors import NotJsonError

MAX_INTEGER: Final = 2**53 - 1
_SAVE: Final = "store it with ctx.save(value, name=…) and return the reference"


def to_json(value: Any, path: str = "$") -> Any:
    """Give a JSON value (None, bool, int, float, str, list, dict with text keys) that is equal to `value`.

    Tuples become lists, subclasses their plain kinds, numpy and pandas scalars numbers, text or None: missing values
    (NaT, NA) None, times ISO 8601 text, durations seconds. The result shares no container with the argument.
    Raises NotJsonError, with the path to the culprit and what to do, for NaN, infinity, integers beyond ±(2**53 - 1),
    keys that are not text, bytes, and any other object.
    """
    try:
        return _convert(value, path)
    except RecursionError:
        raise NotJsonError("the value contains itself or is nested too deeply for JSON", path) from None


def case_of(value: Any) -> str | None:
    """The text under which a switch looks for a value among its cases; None when a value cannot be a case.

    Text stands for itself; True, False and None are `true`, `false` and `null`; whole numbers have no fraction (2.0 is
    `2`).
    """
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return int.__repr__(int(value)) if value.is_integer() and abs(value) <= MAX_INTEGER else float.__repr__(value)
    return None


def _convert(value: Any, path: str) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return _integer(value, path)
    if kind is float:
        return _float(value, path)
    if kind is dict:
        return _object(value, path)
    if kind is list or kind is tuple:
        return [_convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return _convert_other(value, path)


def _integer(value: int, path: str) -> int:
    if -MAX_INTEGER <= value <= MAX_INTEGER:
        return value
    raise NotJsonError(f"the integer {value} is too large to be exact in JSON; use a string: str(value)", path)


def _float(value: float, path: str) -> float:
    if math.isfinite(value):
        return value
    raise NotJsonError(f"{value} is not JSON; return None, or leave the value out", path)


def _object(value: dict[Any, Any], path: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJsonError(f"the key {key!r} is {_described(key)}, JSON has only text keys; use str(key)", path)
        name = key if type(key) is str else str.__str__(key)
        out[name] = _convert(item, f"{path}.{name}")
    return out


def _convert_other(value: Any, path: str) -> Any:
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" and getattr(value, "ndim", None) == 0:
        return _numpy_scalar(value, path)
    if module == "pandas":
        done, converted = _pandas_scalar(value, path)
        if done:
            return converted
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _integer(int(value), path)
    if isinstance(value, float):
        return _float(float(value), path)
    if isinstance(value, dict):
        return _object(value, path)
    if isinstance(value, list | tuple):
        return [_convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise NotJsonError(f"{_described(value)} is not JSON; {_advice(value)}", path)


def _numpy_scalar(value: Any, path: str) -> Any:
    kind = value.dtype.kind
    if kind in "mM":
        if str(value) == "NaT":
            return None
        if kind == "M":
            return str(value)
        return _float(float(value.astype("timedelta64[ns]").astype("int64")) / 1e9, path)
    plain = value.item()
    if type(plain) is type(value) or kind not in "biufU":
        raise NotJsonError(f"{_described(value)} is not JSON; {_advice(value)}", path)
    return _convert(plain, path)


def _pandas_scalar(value: Any, path: str) -> tuple[bool, Any]:
    kind = type(value).__name__
    if kind in ("NAType", "NaTType"):
        return True, None
    if kind == "Timestamp":
        return True, value.isoformat()
    if kind == "Timedelta":
        return True, _float(value.total_seconds(), path)
    if kind == "Period":
        return True, str(value)
    return False, None


def _described(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__.partition('.')[0]}.{name}"
    return f"a {name}" if name[:1].lower() not in "aeiou" else f"an {name}"


def _advice(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, set | frozenset):
        return "return a list: sorted(value)"
    if kind in ("datetime", "date", "time"):
        return "return text: value.isoformat()"
    if kind == "timedelta":
        return "return seconds: value.total_seconds()"
    if kind == "Decimal":
        return "return str(value) or float(value)"
    if kind in ("Path", "PosixPath", "UUID"):
        return "return text: str(value)"
    if kind == "coroutine":
        return "an `await` is missing before the call that gave it"
    if hasattr(type(value), "__dataclass_fields__"):
        return "return dataclasses.asdict(value)"
    if hasattr(type(value), "model_dump"):
        return "return value.model_dump(mode='json')"
    if kind == "DataFrame":
        return f"return value.to_dict('records') when it is small, or {_SAVE}"
    if kind in ("ndarray", "Series", "Index"):
        return f"return value.tolist() when it is small, or {_SAVE}"
    return f"return numbers, text, lists and dicts, or {_SAVE}"
