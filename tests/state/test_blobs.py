from __future__ import annotations

import json

import pytest

from pi_workflows_nb.state import blobs
from pi_workflows_nb.wire import identities
from pi_workflows_nb.wire.errors import BlobConflictError, NotFoundError, NotJsonError
from tests.state.files import NOW


def rows(database):
    return database.connection.execute(
        "SELECT media_type, content, created_at FROM blobs ORDER BY created_at"
    ).fetchall()


def test_a_value_comes_back_and_its_key_is_the_digest_of_its_bytes(database):
    value = {"b": [1, None, "é"], "a": 1.5}
    digest = blobs.put_json(database.connection, value, NOW)
    assert digest == identities.sha256('{"a":1.5,"b":[1,null,"é"]}'.encode())
    assert blobs.read_json(database.connection, digest) == value
    assert json.loads(blobs.read_json_bytes(database.connection, digest)) == value


def test_equal_bytes_share_the_first_row(database):
    first = blobs.put_json(database.connection, [1], NOW)
    assert blobs.put_json_bytes(database.connection, b"[1]", NOW + 5) == first
    assert rows(database) == [(blobs.JSON, b"[1]", NOW)]


@pytest.mark.parametrize("batched", [False, True])
def test_text_and_json_of_the_same_bytes_meet_in_a_row_that_is_json(database, batched):
    connection = database.connection
    digest = blobs.put_text(connection, "null", NOW)
    with pytest.raises(BlobConflictError):
        blobs.read_json(connection, digest)
    if batched:
        connection.executemany(blobs.INSERT_BLOBS, [blobs.blob_row(b"null", blobs.JSON, NOW)])
    else:
        blobs.put_json(connection, None, NOW)
    assert blobs.read_json(connection, digest) is None
    assert blobs.put_text(connection, "null", NOW) == digest
    connection.executemany(blobs.INSERT_BLOBS, [blobs.blob_row(b"null", blobs.TEXT, NOW)])
    assert rows(database) == [(blobs.JSON, b"null", NOW)]
    assert blobs.read_text(connection, digest) == "null"


def test_lone_surrogates_are_replaced_in_text_and_kept_in_json(database):
    connection = database.connection
    assert blobs.read_text(connection, blobs.put_text(connection, "a\ud800", NOW)) == "a\ufffd"
    assert blobs.read_json(connection, blobs.put_json(connection, "a\ud800", NOW)) == "a\ud800"


def test_a_row_that_does_not_hold_its_bytes_is_an_error(database):
    digest = blobs.put_text(database.connection, "abc", NOW)
    database.connection.execute("UPDATE blobs SET content = ?", (b"abd",))
    with pytest.raises(BlobConflictError, match="damaged"):
        blobs.put_text(database.connection, "abc", NOW)
    assert blobs.read_text(database.connection, digest) == "abd"


def test_what_is_not_json_leaves_nothing(database):
    with pytest.raises(NotJsonError):
        blobs.put_json(database.connection, {1}, NOW)
    assert rows(database) == []


def test_an_unknown_digest_is_not_found(database):
    for read in (blobs.read_json, blobs.read_json_bytes, blobs.read_text):
        with pytest.raises(NotFoundError):
            read(database.connection, bytes(32))
    with pytest.raises(NotFoundError):
        blobs.read_part(database.connection, bytes(32), 0, 1)


def test_parts_of_a_large_value(database):
    content = bytes(range(256)) * 8192
    row = blobs.blob_row(content, blobs.TEXT, NOW)
    database.connection.execute(blobs.INSERT_BLOBS, row)
    size = 512 << 10
    parts = [
        blobs.read_part(database.connection, row[0], offset, size) for offset in range(0, len(content) + size, size)
    ]
    assert b"".join(parts) == content
    assert parts[-1] == b""
    assert blobs.read_part(database.connection, row[0], len(content) + 10, 5) == b""
