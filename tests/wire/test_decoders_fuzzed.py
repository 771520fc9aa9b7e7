"""Whatever arrives on a pipe or a socket is a frame, or one error: no crash, no hang, no growth."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import PiWorkflowsError, ProtocolError
from pi_workflows_nb.wire.lines import Lines
from tests.fuzz import mutations
from tests.fuzz.targets import STREAM, TARGETS, Target

EXAMPLES = 400


def fuzz(target: Target, count: int, seed: int = 7) -> int:
    """How many of so many spoilt frames were taken all the same."""
    chance = random.Random(f"{target.name}{seed}")
    return sum(target.check(mutations.spoilt(chance.choice(target.seeds), target.seeds, chance)) for _ in range(count))


@pytest.mark.parametrize("target", [*TARGETS, STREAM], ids=lambda target: target.name)
def test_a_spoilt_frame_is_read_or_refused_with_one_error(target, long_form):
    assert all(map(target.check, target.seeds[:1]))
    count = 5000 if long_form else EXAMPLES
    taken = fuzz(target, count)
    assert taken < count


@pytest.mark.parametrize("target", [*TARGETS, STREAM], ids=lambda target: target.name)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300))
def test_so_are_bytes_of_any_kind(target, data):
    target.check(data)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.randoms())
def test_a_stream_is_cut_into_its_lines_wherever_it_arrives_in_pieces(lines, chance):
    data, cut, found = b"".join(line + b"\n" for line in lines), Lines(), []
    while data:
        size = chance.randint(1, 100)
        found += cut.cut(data[:size])
        data = data[size:]
    assert found == lines


def grown(targets: list[Target], rounds: int) -> int:
    """How many bytes Python holds more after so many rounds than after the first one.

    Counted by its allocator: what the system says of a process that ran other tests before says nothing of this one.
    """
    for target in targets:
        fuzz(target, 50)
    tracemalloc.start()
    try:
        for seed in range(rounds):
            for target in targets:
                fuzz(target, 50, seed)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_reading_leaves_no_memory():
    assert grown([*TARGETS, STREAM], 5) < 1 << 20


# What these tests are worth: readers with a fault, each of which they have to find.


def _misses_a_field(data):
    try:
        return {"name": json.loads(data)["name"]}
    except ValueError as error:
        raise ProtocolError("no JSON") from error


def _takes_any_order(data):
    try:
        found = json.loads(data)
        canonical_json.encode(found)
    except (ValueError, RecursionError, PiWorkflowsError) as error:
        raise ProtocolError("no JSON") from error
    return found


def _recurses(data):
    try:
        json.loads(data)
    except ValueError as error:
        raise ProtocolError("no JSON") from error
    return data


def _quotes_all(data):
    raise ProtocolError(repr(data) * 10)


FAULTY = {
    "a field that is missing": _misses_a_field,
    "an order that is not kept": _takes_any_order,
    "a depth that has no end": _recurses,
    "an error as long as its cause": _quotes_all,
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_reader_is_found(fault):
    write = bytes if fault == "a depth that has no end" else canonical_json.encode
    seeds = [b'{"a":[[]],"name":"x"}', b'{"name":"y","z":{"q":1}}']
    with pytest.raises((AssertionError, KeyError, TypeError, RecursionError)):
        fuzz(Target(fault, FAULTY[fault], write, seeds), EXAMPLES)


def test_a_reader_that_keeps_what_it_reads_is_found():
    kept = []
    keeps = Target("keeps", lambda data: kept.append(bytearray(8 << 10)) or data, bytes, [b"{}"])
    assert grown([keeps], 5) > 1 << 20
