from __future__ import annotations

import enum
import json
import math
import threading
from collections import OrderedDict
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.wire import canonical_json, identities
from pi_workflows_nb.wire.errors import NotJsonError, ProtocolError

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "canonical-json.json").read_text())
DEFINITIONS = json.loads((Path(__file__).parent.parent / "vectors" / "store.json").read_text())["definition_digests"]

texts = st.text(st.characters() | st.sampled_from('a0\ud83d\ude00\ue000\uffff😀\u2028\x00"\\'), max_size=6)
numbers = (
    st.integers(-canonical_json.MAX_INTEGER, canonical_json.MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-1000, 1000).map(float)
    | st.sampled_from([1e21, 1e20, 1e16, 9007199254740992.0, 1e-6, 1e-7, 1e-4, 9.9e-5, -0.0, 5e-324])
)
keys = (
    texts | st.integers(0, 2**33).map(str) | st.sampled_from(["0", "00", "-1", "4294967294", "4294967295", "9", "10"])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("vector", VECTORS["canonical"], ids=lambda vector: vector["json"][:30])
def test_bytes_and_digest_are_those_of_the_vectors(vector):
    data = canonical_json.encode(canonical_json.decode(vector["json"].encode()))
    assert data == vector["canonical"].encode()
    assert identities.sha256_hex(data) == vector["sha256"]
    assert canonical_json.encode(canonical_json.check(data)) == data


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_definition_digests_are_those_of_the_vectors(definition):
    assert canonical_json.encode(definition["snapshot"]).decode() == definition["canonical"]
    assert identities.fingerprint(definition["snapshot"]).hex() == definition["sha256"]


@pytest.mark.parametrize("error", VECTORS["errors"], ids=lambda error: error["value"])
def test_numbers_that_are_not_finite_are_refused_in_both_directions(error):
    with pytest.raises(NotJsonError, match="finite"):
        canonical_json.encode(float(error["value"].replace("Infinity", "inf")))
    with pytest.raises(NotJsonError):
        canonical_json.decode(error["value"].encode())


def reference(value):
    """Slow and straightforward: keys in ECMAScript's order, numbers and strings one by one."""
    if isinstance(value, dict):

        def rank(key):
            index = key.isascii() and key.isdigit() and str(int(key)) == key and int(key) < 2**32 - 1
            return (0, int(key), b"") if index else (1, 0, key.encode("utf-16-be", "surrogatepass"))

        return "{" + ",".join(f"{reference(key)}:{reference(value[key])}" for key in sorted(value, key=rank)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(reference, value)) + "]"
    if isinstance(value, float):
        return rfc8785.dumps(value).decode()
    if isinstance(value, str):
        joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return json.dumps(joined, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return json.dumps(value)


def joined_keys_differ(value):
    if isinstance(value, dict):
        units = {key.encode("utf-16-le", "surrogatepass") for key in value}
        return len(units) == len(value) and all(map(joined_keys_differ, value.values()))
    return all(map(joined_keys_differ, value)) if isinstance(value, list) else True


@settings(max_examples=400, deadline=None)
@given(values.filter(joined_keys_differ))
def test_every_value_gets_the_reference_bytes_by_both_ways(value):
    data = canonical_json.encode(value)
    assert data == reference(value).encode()
    assert data == canonical_json._encode_exactly(value)
    assert canonical_json.encode(canonical_json.check(data)) == data


@pytest.mark.parametrize(
    ("value", "path", "word"),
    [
        ({"rows": [0, {"when": {1}}]}, "$.rows[1].when", "set"),
        ({"a": {1: 2}}, "$.a", "must be str"),
        ({"a b": [2**53]}, '$["a b"][0]', "use a string"),
        ([-(2**53)], "$[0]", "use a string"),
        ([b"x"], "$[0]", "bytes"),
        ({"x": math.inf}, "$.x", "finite"),
        ([10**5000], "$[0]", "use a string"),
        (object(), "$", "object"),
        ([{"\ud83d\ude00": 1, "😀": 2}], "$[0]", "surrogates"),
    ],
)
def test_what_is_not_json_is_named_with_its_place(value, path, word):
    with pytest.raises(NotJsonError, match=word) as caught:
        canonical_json.encode(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


def test_the_largest_integers_pass():
    assert canonical_json.encode([2**53 - 1, -(2**53 - 1)]) == b"[9007199254740991,-9007199254740991]"


def test_subclasses_of_the_plain_types_count_as_what_they_are():
    class Color(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    value = OrderedDict(b=(Color.RED, Level.HIGH), a=True)
    assert canonical_json.encode(value) == b'{"a":true,"b":["red",3]}'


def test_too_deep_is_an_error_of_ours_in_both_directions():
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(NotJsonError, match="deeper than 500"):
        canonical_json.encode(deep)
    with pytest.raises(NotJsonError, match="nested too deeply"):
        canonical_json.decode(b"[" * 10_000 + b"]" * 10_000)
    with pytest.raises(ProtocolError):
        canonical_json.check(b'{"a":' * 10_000 + b"1" + b"}" * 10_000)


def test_five_hundred_levels_pass_and_one_more_does_not():
    value: list = []
    for _ in range(canonical_json.MAX_DEPTH - 1):
        value = [value]
    assert canonical_json.encode(canonical_json.check(canonical_json.encode(value))) == b"[" * 500 + b"]" * 500
    with pytest.raises(NotJsonError):
        canonical_json.encode([value])
    with pytest.raises(NotJsonError):
        canonical_json.encode({"9": 1.0, "b": [value]})


def test_a_container_that_holds_itself_is_an_error():
    loop: dict = {}
    loop["twice"] = [loop, loop]
    with pytest.raises(NotJsonError, match="holds itself"):
        canonical_json.encode(loop)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740992.0),
        ("-9007199254740993", -9007199254740992.0),
        ("9007199254740991", 2**53 - 1),
        ("1234567890123456", 1234567890123456),
        ("123456789012345678901234567890", 1.2345678901234568e29),
        ('{"a":1,"b":0,"a":2}', {"a": 2, "b": 0}),
        ('"\\ud800"', "\ud800"),
        ('["1234567890123456789"]', ["1234567890123456789"]),
        ("5e-400", 0.0),
        (" [1 ,2]\n", [1, 2]),
    ],
)
def test_reading_is_that_of_json_parse(text, value):
    read = canonical_json.decode(text.encode())
    assert read == value
    assert type(read) is type(value)
    assert canonical_json.decode(memoryview(text.encode())) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"01",
        b"NaN",
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b'"a\nb"',
        b"1e999",
        b"-1e999",
        b"9" * 400,
        b"9" * 5000,
        b"[1,]",
    ],
)
def test_what_json_parse_refuses_is_refused(data):
    with pytest.raises(NotJsonError):
        canonical_json.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"b":1,"a":2}',
        b"1.0",
        b"[1, 2]",
        b'"\\u00e9"',
        b'{"a":1,"a":1}',
        b"1e5",
        b"-0",
        b"9007199254740993",
        b"[1]\n",
        b"{",
    ],
)
def test_a_frame_that_is_not_canonical_is_refused(data):
    with pytest.raises(ProtocolError):
        canonical_json.check(data)


def test_a_stack_that_is_nearly_full_gives_the_same_error():
    caught = []
    value = json.loads("[" * 450 + "]" * 450)

    def go(depth: int) -> None:
        if depth:
            go(depth - 1)
            return
        for action in (lambda: canonical_json.encode(value), lambda: canonical_json.decode(b"[" * 450 + b"]" * 450)):
            try:
                action()
            except NotJsonError as error:
                caught.append(str(error))

    thread = threading.Thread(target=go, args=(800,))
    thread.start()
    thread.join()
    assert len(caught) == 2
    assert all("stack" in text for text in caught)
