"""A cell that copies the live state file takes the server's locks away; the nursery's keep the WAL alive."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
from os.path import exists
from pathlib import Path

import pytest

from pi_workflows_nb.wire.errors import StateUnavailableError
from tests.runner.nurseries import HERE, nursery

ROOT = HERE.parents[1]
WRITER = f"""
import asyncio, os, shutil, sqlite3, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.runner.nurseries import nursery
path, guarded = Path(sys.argv[1]), sys.argv[2] == "guarded"

async def check():
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    async with nursery() as made:
        if guarded:
            await made.guard(path)
        connection.execute("INSERT INTO t VALUES ('before')")
        shutil.copy(path, str(path) + ".copy")
        print("copied", flush=True)
        sys.stdin.readline()
        connection.execute("INSERT INTO t VALUES ('after')")
        print("committed", flush=True)
        sys.stdin.readline()
        await made.unguard()
        connection.close()

asyncio.run(check())
"""


def foreign(path: Path) -> list[str]:
    """What another program reads, which opens and closes the file."""
    program = f"import sqlite3; c = sqlite3.connect({str(path)!r}); print(*(x for x, in c.execute('SELECT x FROM t')))"
    said = subprocess.run([sys.executable, "-c", program + "; c.close()"], capture_output=True, text=True, check=True)
    return said.stdout.split()


@pytest.mark.parametrize("guarded", [True, False])
def test_commits_stay_visible_after_a_copy_in_the_writing_process(tmp_path: Path, guarded: bool):
    path = tmp_path / "live.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), "guarded" if guarded else "bare"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "copied\n"
        assert foreign(path) == ["before"]
        assert Path(f"{path}-wal").exists() == guarded
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "committed\n"
        # Without the guard the commit went into a WAL that has no name any more.
        assert foreign(path) == (["before", "after"] if guarded else ["before"])
    assert writer.returncode == 0
    if guarded:
        # The locks were given up before the last close, so the file is at rest: one file, everything in it.
        assert not Path(f"{path}-wal").exists()
        assert foreign(path) == ["before", "after"]


@pytest.fixture
def live(tmp_path: Path):
    path = tmp_path / "live.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    yield path, connection
    connection.close()


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """Two ordinary files: to open and close live ones here would do what the guard is against."""
    path = tmp_path / "file"
    path.touch()
    Path(f"{path}-shm").touch()
    return path


def holder(path: Path) -> subprocess.Popen[str]:
    """A program that holds the bytes of the guard exclusively, until its input ends."""
    program = (
        "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR);"
        "fcntl.lockf(d, fcntl.LOCK_EX, 510, 1073741826); print('held', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def exclusive_by_another(path: Path, first: int, size: int) -> bool:
    """Whether another process could lock these bytes exclusively."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size, first)
        except OSError:
            return False
        return True


def made_anew(path: Path) -> None:
    path.unlink()
    path.touch()


def test_both_locks_are_held_until_unguard(quiet: Path):
    path, index = quiet, Path(f"{quiet}-shm")

    async def check() -> None:
        async with nursery() as made:
            await made.guard(path)
            await made.guard(path)
            assert not exclusive_by_another(path, 1073741826, 1)
            assert not exclusive_by_another(path, 1073741826 + 509, 1)
            assert not exclusive_by_another(index, 128, 1)
            assert exclusive_by_another(index, 127, 1)
            made_anew(index)
            assert exclusive_by_another(index, 128, 1)
            await made.guard(path)
            assert not exclusive_by_another(index, 128, 1)
            assert not exclusive_by_another(path, 1073741826, 510)
            await made.unguard()
            assert exclusive_by_another(path, 1073741826, 510)
            assert exclusive_by_another(index, 128, 1)
            await made.unguard()

    asyncio.run(check())


def test_it_waits_for_a_program_that_is_just_closing(quiet: Path):
    path = quiet

    async def check() -> None:
        async with nursery() as made:
            with holder(path) as process:
                task = asyncio.create_task(made.guard(path))
                await asyncio.sleep(0.05)
                assert not task.done()
                assert process.stdin is not None
                process.stdin.close()
                await asyncio.wait_for(task, 1)
            await made.unguard()

    asyncio.run(check())


def test_a_file_that_stays_locked_or_is_missing_is_an_error(quiet: Path, tmp_path: Path):
    path = quiet

    async def check() -> None:
        async with nursery() as made:
            with pytest.raises(StateUnavailableError, match="No such file"):
                await made.guard(tmp_path / "nothing")
            with holder(path) as process:
                with pytest.raises(StateUnavailableError, match="another program"):
                    await made.guard(path)
                assert process.stdin is not None
                process.stdin.close()
            await made.guard(path)
            await made.unguard()

    asyncio.run(check())


def test_a_runner_that_copies_the_file_takes_nothing_away(live):
    """Locks are of a process: descriptors a child closes are its own."""
    path, connection = live

    async def check() -> None:
        async with nursery() as made:
            await made.guard(path)
            child = await made.spawn(
                mode=f"import shutil; shutil.copy({str(path)!r}, {str(path) + '.copy'!r})",
                environment=None,
                folder="/",
                log=Path(os.devnull),
                epoch="e",
            )
            assert await child.exited == 0
            child.socket.close()
            foreign(path)
            assert await asyncio.to_thread(exists, f"{path}-wal")
            connection.execute("INSERT INTO t VALUES ('after')")
            assert foreign(path) == ["after"]
            await made.unguard()

    asyncio.run(check())
