"""Frames spoilt by what goes wrong in frames, and bytes spoilt anyhow. `random` decides, so that a seed tells all."""

from __future__ import annotations

import json
import random
from typing import Any

HOSTILE: list[Any] = [
    None, True, -1, 0, 2**53, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e16, 1e308, "", "\ud800", "\x00", "é" * 600, [],
    {}, "a" * 70_000, "a depth", [[]], {"": {}}, {"__proto__": 1}, {"10": 1, "9": 2},
]  # fmt: skip
PIECES = [
    b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b" ", b"\n", b"NaN", b"Infinity", b"1E5", b"1.0", b"-0", b"01",
    b"\\ud800", b"\\u0041", b"\\/", b'"', b"{", b"}", b"[", b"]", b",", b":", b"[" * 5000, b'{"a":' * 3000, b"9" * 5000,
    b"\xef\xbb\xbf",
]  # fmt: skip


def spoilt(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The frame after one to three mishaps."""
    for _ in range(chance.randint(1, 3)):
        frame = chance.choice((_value, _value, _field, _bytes, _bytes, _piece, _cut, _splice))(frame, others, chance)
    return frame


def _value(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Another value somewhere in it."""
    try:
        root = json.loads(frame)
    except (ValueError, RecursionError):
        return _bytes(frame, others, chance)
    places = list(_places(root, 0))
    if not places:
        return _written(chance.choice(HOSTILE), chance)
    holder, key = chance.choice(places)
    holder[key] = chance.choice(HOSTILE)
    return _written(root, chance)


def _field(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A field too many, one too few, one twice, or others in another order."""
    try:
        root = json.loads(frame)
    except (ValueError, RecursionError):
        return _bytes(frame, others, chance)
    if not isinstance(root, dict) or not root:
        return frame
    keys = list(root)
    what = chance.randrange(4)
    if what == 0:
        root[chance.choice(["zzz", "", "schema2", "Schema"])] = 1
    elif what == 1:
        del root[chance.choice(keys)]
    elif what == 2:
        chance.shuffle(keys)
        root = {key: root[key] for key in keys}
    else:
        twice = json.dumps({chance.choice(keys): None})[1:-1]
        return b"{" + twice.encode() + b"," + _written(root, chance)[1:]
    return _written(root, chance)


def _places(value: Any, depth: int) -> Any:
    if depth > 20:
        return
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key], depth + 1)


def _written(value: Any, chance: random.Random) -> bytes:
    """Mostly as a frame is written: only so does what is wrong inside get that far."""
    plain = chance.random() < 0.1
    text = json.dumps(
        value, ensure_ascii=plain, separators=None if plain else (",", ":"), sort_keys=chance.random() < 0.5
    )
    return text.replace('"a depth"', "[" * 3000 + "]" * 3000).encode("utf-8", "surrogatepass")


def _bytes(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _piece(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    at = chance.randint(0, len(frame))
    return frame[:at] + chance.choice(PIECES) + frame[at:]


def _cut(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    first, last = sorted((chance.randint(0, len(frame)), chance.randint(0, len(frame))))
    return frame[:first] + frame[last:]


def _splice(frame: bytes, others: list[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others)
    return frame[: chance.randint(0, len(frame))] + other[chance.randint(0, len(other)) :]
