from __future__ import annotations

import json
import os
import re
import threading
import uuid
from pathlib import Path

import pytest

from pi_workflows_nb.wire import identities

FOLDER = Path(__file__).parent.parent / "vectors"
JSON = json.loads((FOLDER / "canonical-json.json").read_text())
IDS = json.loads((FOLDER / "identities.json").read_text())
STORE = json.loads((FOLDER / "store.json").read_text())


def made(value):
    """A text of the vectors: itself, or a repetition of one up to a length."""
    if isinstance(value, str):
        return value
    length = value.get("length") or value["utf16Length"]
    return value["repeat"] * (length // (len(value["repeat"].encode("utf-16-le")) // 2))


def test_aggregates():
    for vector in JSON["resource_ids"]:
        assert identities.aggregate_id(vector["type"], vector["aggregate_key"]) == vector["resource_id"]
    for vector in STORE["resource_ids"]:
        assert identities.aggregate_id(vector["type"], vector["aggregateKey"]) == vector["out"]


def test_token_hashes():
    for vector in JSON["token_hashes"]:
        assert identities.token_hash(vector["token"]).hex() == vector["sha256"]


def test_effects():
    for vector in IDS["effect_ids"]:
        assert identities.effect_id_of_resource(vector["source_resource_id"], vector["key"]) == vector["effect_id"]
    for vector in STORE["effect_ids_of_resources"]:
        effect_id = identities.effect_id_of_resource(vector["source_resource_id"], vector["key"])
        assert effect_id == vector["effect_id"]
        assert identities.aggregate_id("effect", effect_id) == vector["effect_resource_id"]
    for vector in STORE["effect_ids_of_runs"]:
        effect_id = identities.effect_id_of_run(
            vector["source_resource_id"], vector["effect_type"], vector["idempotency_key"]
        )
        assert effect_id == vector["effect_id"]


def test_projects(tmp_path):
    for vector in IDS["project_ids"]:
        assert identities.project_id(vector["canonical_path"]) == vector["project_id"]
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert identities.project_id(tmp_path / "link") == identities.project_id(tmp_path / "real")
    assert identities.canonical_path(tmp_path / "none" / ".." / "there") == str(tmp_path / "there")


def test_managed_resources():
    for vector in IDS["managed_resource"]:
        key = identities.managed_resource_key(vector["project_id"], vector["resource_manager"], vector["key"])
        assert key == vector["aggregate_key"]
        assert identities.aggregate_id("controller", key) == vector["resource_id"]
    assert identities.managed_resource_key("p", "m", "k", "uid-2") == "p:m:k:uid-2"


def test_messages_segments_and_follow_ups():
    for vector in STORE["workflow_message_ids"]:
        given = vector["kind"], vector["source_id"], vector["idempotency_key"]
        assert identities.workflow_message_id(*given) == vector["id"]
    for vector in STORE["segment_ids"]:
        assert identities.segment_id(vector["run_id"], vector["attempt_id"] or None) == vector["id"]
    for vector in STORE["follow_up_ids"]:
        assert identities.follow_up_id(vector["run_id"], vector["request_id"]) == vector["id"]
    assert identities.settings_scope_id("run-1", "", 1) == "run-1:$root:1"
    assert identities.interactive_request_id("r", "a") == "interaction-r-a"


def test_names_of_resources():
    for value in IDS["names_and_keys"]["accepted"]:
        assert identities.is_resource_name(value)
    for value in IDS["names_and_keys"]["refused"]:
        assert not identities.is_resource_name(value)
    for vector in STORE["names_and_keys"]:
        assert identities.is_resource_name(made(vector["value"])) is vector["accepted"]


def test_run_ids():
    for vector in STORE["run_ids"]:
        assert (identities.RUN_ID.match(made(vector["value"])) is not None) is vector["accepted"]


@pytest.mark.parametrize("name", ["triage", "", "a b/ü", "😀", "x" * 300])
def test_a_new_run_id_is_one(name):
    run_id = identities.new_run_id(name, 1767225600007)
    assert identities.RUN_ID.match(run_id)
    assert run_id.startswith("20260101T000000007Z-")
    assert identities.new_run_id(name, 1767225600007) != run_id


def test_digest_texts():
    for vector in STORE["digest_texts"]:
        digest = identities.digest_bytes(vector["value"])
        assert (None if digest is None else identities.digest_text(digest)) == vector["digest"]


def test_fresh_ids_are_uuids_that_grow_and_never_meet():
    found: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(identities.new_id() for _ in range(5000))

    threads = [threading.Thread(target=make, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one for some in found for one in some]
    assert len(set(ids)) == len(ids)
    one = uuid.UUID(ids[0])
    assert (one.version, one.variant) == (7, uuid.RFC_4122)
    # Within a millisecond the counter orders them, so a thread's own ids are in order but for a step of the clock.
    assert sum(before > after for before, after in zip(found[0], found[0][1:], strict=False)) <= 2
    assert identities.new_event_id().startswith("event-")


def test_a_forked_child_makes_other_ids():
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, "".join(identities.new_id()[-12:] for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert identities.new_id()[-12:] not in theirs


def test_tokens_are_secrets_that_never_repeat():
    tokens = {identities.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)


def test_lone_surrogates_become_replacement_characters_in_text():
    assert identities.utf8("a\ud800b\udfff\ud83d\ude00") == "a\ufffdb\ufffd😀".encode()
    assert identities.utf8("\ud800") == "\ufffd".encode()


@pytest.mark.parametrize(
    ("text", "units", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("😀😀😀", 6, "😀😀😀"),
        ("😀😀😀😀", 6, "😀😀…"),
        ("a😀😀😀", 6, "a😀😀…"),
        ("", 6, ""),
    ],
)
def test_texts_are_cut_between_characters(text, units, cut):
    assert identities.cap_units(text, units) == cut
    assert identities.utf16_units(cut) <= units


def test_a_long_error_is_cut_to_8192_units():
    assert identities.utf16_units(identities.cap_units("é" * 10_000)) == 8192
