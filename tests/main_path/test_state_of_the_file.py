"""The file as a whole, from a cell and from the command line: status, verify, backup, prune; served and at rest."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

import pi_workflows_nb as pw
from pi_workflows_nb.server import contents
from pi_workflows_nb.state import blobs
from tests.hostile.surroundings import sound, until

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]
LARGE = 200_000


@pytest.fixture
def call(state_file, tmp_path):
    def called(*words, status=0):
        result = subprocess.run(
            [*PROGRAM, "state", *words, "--database", str(state_file)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (result.returncode, len(result.stderr.splitlines())) == (status, 1 if status == 2 else 0), result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    return called


def refused(state_file, tmp_path, *words):
    result = subprocess.run(
        [*PROGRAM, "state", *words, "--database", str(state_file)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    return result.returncode, line


def large():
    wf = pw.Workflow("large", start_at="make")

    @wf.compute
    def make(ctx):
        import random

        print("made")
        return random.Random(ctx.input).randbytes(100_000).hex()

    return wf


@pytest.fixture(params=["thread", "process"])
def server(request, state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path, server=request.param) as served:
        yield served
    sound(state_file)


def test_a_backup_is_one_moment_of_a_file_that_goes_on(server, tmp_path, call, state_file):
    runs = [server.run(large(), n) for n in range(3)]
    made = server.backup(tmp_path / "copy.sqlite")
    for run in runs:
        run.wait()
    assert made["bytes"] == (tmp_path / "copy.sqlite").stat().st_size
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    assert call("verify", "copy.sqlite") == [{"errors": 0, "warnings": 0}]
    assert len(pw.open_state(tmp_path / "copy.sqlite").runs()) == 3
    assert call("verify") == [{"errors": 0, "warnings": 0}]
    (facts,) = call("backup", "again.sqlite")
    assert facts["findings"] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if ".new" in path.name) == []
    before = (tmp_path / "again.sqlite").read_bytes()
    for path in ("again.sqlite", state_file, f"{state_file}-wal", "no-folder/copy.sqlite"):
        with pytest.raises(pw.StateFileError):
            server.backup(tmp_path / path)
    (tmp_path / "link").symlink_to(state_file)
    with pytest.raises(pw.StateFileError, match="itself"):
        server.backup(tmp_path / "link")
    assert (tmp_path / "again.sqlite").read_bytes() == before


def test_what_ended_leaves_and_the_file_and_its_log_shrink(server, tmp_path, state_file):
    for n in range(8):
        server.run(large(), n, key=str(n)).wait()
    kept = pw.Workflow("kept", start_at="ask")
    kept.checkpoint("ask")
    asks = server.run(kept).wait()
    until(lambda: server.status()["runners"] == 0)
    logs = list(state_file.with_name(f"{state_file.name}.d").glob("logs/*.log"))
    assert len(logs) == 8
    before = {"apply": False, "before": "2200-01-01"}
    found = server.prune(**before)
    assert (found["applied"], found["trees"], found["kept"]) == (False, 8, {
        "a run that is not over, or not for long enough": 1
    })  # fmt: skip
    assert len(server.runs()) == 9
    with pytest.raises(pw.StateFileError, match="backup"):
        server.prune("2200-01-01", apply=True)
    done = server.prune("2200-01-01", apply=True, backup=tmp_path / "copy.sqlite")
    assert (done["trees"], done["runs"], done["logs"], done["vacuumed"]) == (8, 8, 8, True)
    assert done["blob_bytes"] > 8 * LARGE
    assert done["bytes_after"]["file"] < done["bytes_before"]["file"] + done["bytes_before"]["log"] - 8 * LARGE
    assert done["bytes_after"]["log"] == 0
    assert state_file.stat().st_size < 8 * LARGE
    assert list(server.runs().index) == [asks.id]
    assert len(pw.open_state(tmp_path / "copy.sqlite").runs()) == 9
    assert len(server.verify()) == 0
    assert asks.answer(1) is not None
    assert server.run(large(), 0, key="0").wait().output, "its key is free again"


def test_runs_go_on_while_others_leave(server, tmp_path):
    for n in range(5):
        server.run(large(), n).wait()
    runs = [server.run(large(), n) for n in range(6)]
    server.prune("2200-01-01", apply=True, backup=tmp_path / "copy.sqlite")
    runs += [server.run(large(), n) for n in range(3)]
    for run in runs:
        try:
            run.wait(timeout=60)
        except pw.NotFoundError:
            continue  # it had ended when its turn came
    assert len(server.verify()) == 0


def test_a_value_that_is_being_read_in_parts_is_held():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE blobs(blob_hash BLOB PRIMARY KEY, media_type, byte_length, content, created_at)"
        )
        digest = blobs.put_text(connection, "x" * 1_000_000, 1)
        wish = contents.ContentRead(offset=0, sha256=digest.hex())
        assert len(contents.bytes_of(wish, connection)) < 1_000_000
        assert digest in contents.held()
        rest = contents.ContentRead(offset=900_000, sha256=digest.hex())
        contents.bytes_of(rest, connection)
        assert digest not in contents.held()


def test_at_rest_the_command_line_does_it_itself(state_file, tmp_path, call):
    with pw.start(database=state_file, project=tmp_path) as server:
        for n in range(3):
            server.run(large(), n).wait()
    size = state_file.stat().st_size
    (facts,) = call("status")
    assert (facts["runs"], facts["bytes"], facts["owned"]) == ({"completed": 3}, size, False)
    assert call("verify")[-1]["errors"] == 0
    assert call("prune", "--before", "1h", "--dry-run")[0]["trees"] == 0
    copy = tmp_path / "copy.sqlite"
    (done,) = call("prune", "--before", "2200-01-01", "--backup", str(copy), "--apply")
    assert (done["trees"], done["vacuumed"]) == (3, True)
    assert state_file.stat().st_size == done["bytesAfter"]["file"] < size
    assert call("verify", "copy.sqlite")[-1]["errors"] == 0
    assert call("status")[0]["runs"] == {}
    with pw.start(database=state_file, project=tmp_path) as server:
        assert server.run(large(), 1).wait().output


def test_wrong_words_are_one_line_and_status_2(state_file, tmp_path):
    copy = str(tmp_path / "copy.sqlite")
    for words in (
        ["prune", "--dry-run"], ["prune", "--before", "yesterday", "--dry-run"], ["prune", "--before", "30d"],
        ["prune", "--before", "30d", "--apply"], ["prune", "--before", "30d", "--dry-run", "--backup", copy],
        ["prune", "--before", "30d", "--backup", "copy.sqlite", "--apply"], ["backup"], ["verify", "a", "b"], ["mend"],
        ["prune", "--before", "30d", "--dry-run", "--apply"], ["status", "now"],
    ):  # fmt: skip
        assert refused(state_file, tmp_path, *words)[0] == 2, words
    assert not state_file.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_active_file_is_no_inactive_backup_under_any_name(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path):
        (tmp_path / "link").symlink_to(state_file)
        os.link(state_file, tmp_path / "hard")
        for name in ("link", "hard", state_file.name, f"./{state_file.name}"):
            status, line = refused(state_file, tmp_path, "verify", name)
            assert (status, "active" in line) == (1, True)
        (tmp_path / "hard").unlink()


def test_what_is_wrong_is_listed_with_ids_and_status_1(state_file, tmp_path, call):
    with pw.start(database=state_file, project=tmp_path) as server:
        run = server.run(large(), 1).wait()
    with closing(sqlite3.connect(state_file)) as connection:
        connection.execute("UPDATE run_queue SET finished_at = NULL")
        connection.commit()
    found = call("verify", status=1)
    assert [one["id"] for one in found[:-1]] == [run.id]
    assert found[-1] == {"errors": 1, "warnings": 0}


def test_a_copy_with_a_broken_digest_is_no_backup(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path) as server:
        server.run(large(), 1).wait()
    with closing(sqlite3.connect(state_file)) as connection:
        connection.execute("UPDATE blobs SET content = x'00', byte_length = 1 WHERE byte_length > 100000")
        connection.commit()
    status, line = refused(state_file, tmp_path, "backup", "copy.sqlite")
    assert (status, "digest" in line) == (1, True)
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


def test_a_prune_that_is_killed_leaves_a_sound_file(state_file, tmp_path):
    with pw.start(database=state_file, project=tmp_path) as server:
        for n in range(6):
            server.run(large(), n).wait()
    words = ["state", "prune", "--before", "2200-01-01", "--backup", str(tmp_path / "c.sqlite"), "--apply"]
    process = subprocess.Popen([*PROGRAM, *words, "--database", str(state_file)], stdout=subprocess.DEVNULL)

    def left():
        with closing(pw.open_state(state_file)) as state:
            return len(state.runs())

    while process.poll() is None and left() == 6:
        time.sleep(0.005)
    process.kill()
    process.wait()
    with pw.start(database=state_file, project=tmp_path) as server:
        assert len(server.verify()) == 0
        assert server.run(large(), 9).wait().output
