"""Nodes that print, return or use too much: cut, carried, or ended, and the server does not grow with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from pi_workflows_nb.runner.output import CUT, MAX_BYTES
from tests.hostile.nodes import hostile, printed
from tests.hostile.surroundings import until

FIFTY = 50 << 20
PRINTS = {
    "print": "for _ in range(500):\n    print('x' * 104_857)",
    "a child": "import subprocess\nsubprocess.run('yes | head -c 52428800', shell=True, check=True)",
    "C, without an end of its own": (
        "import ctypes\nlibc = ctypes.PyDLL(None)\ntext = b'y' * (1 << 20)\n"
        "for _ in range(50):\n    libc.write(1, text, len(text))\nlibc.pause()"
    ),
    "and dies": "import os\nfor _ in range(50):\n    os.write(1, b'z' * (1 << 20))\nos._exit(1)",
}


def log_of(host, run):
    names = [row[0] for row in host.rows("SELECT attempt_id FROM node_attempts WHERE run_id = ?", run.id)]
    return [path for path in (host.path.with_name("s.sqlite.d") / "logs").iterdir() if path.stem in names]


@pytest.mark.parametrize("how", PRINTS)
def test_fifty_megabytes_of_output_are_cut_clearly(host, how):
    run = host.ended(hostile(PRINTS[how], kind="compute(timeout=2)"))
    logs = [path for path in log_of(host, run) if path.stat().st_size > 100]
    assert logs
    for log in logs:
        assert log.stat().st_size == MAX_BYTES + len(CUT)
        assert log.read_bytes().endswith(CUT)
        log.unlink()
    if how == "and dies":
        run.cancel()
    else:
        assert run.output[0] == ("timed_out" if how.startswith("C") else "ok")
        assert printed(run, "after") == "after"


def test_a_child_that_prints_on_for_ever_fills_no_disk(host):
    run = host.ended(
        hostile("""
        import subprocess, time
        print("first")
        subprocess.Popen(["yes"])
        time.sleep(0.2)
        return "left a child"
        """)
    )
    assert run.output == ["ok", "left a child"]
    # Whoever looks first, the runner or, once its group is gone, the server, brings it back to its greatest length.
    until(lambda: all(path.stat().st_size <= MAX_BYTES + len(CUT) for path in log_of(host, run)))


def test_fifty_megabytes_pass_through_in_both_directions(host):
    server = psutil.Process(host.server.status()["pid"])
    before = server.memory_info().rss
    run = host.ended(hostile(f"assert len(ctx.input) == {FIFTY}\nreturn ctx.input[::-1]"), "ab" * (FIFTY // 2))
    outcome, output = run.output
    assert outcome == "ok"
    assert len(output) == FIFTY
    assert output.startswith("baba")
    del output
    assert host.runners(run) == ["exited"]
    if host.server.placement == "process":
        assert server.memory_info().rss - before < 4 * FIFTY


GROUPS = Path("/sys/fs/cgroup")
ROOM = 96 << 20
EATS = """
{enter}
kept = []
try:
    while True:
        kept.append(b"m" * (8 << 20))
except MemoryError:
    os.abort()
"""
INTO_A_GROUP = """
import os
with open({procs!r}, "w") as file:
    file.write(str(os.getpid()))
"""
INTO_A_LIMIT = f"""
import os, resource
with open("/proc/self/statm") as file:
    pages = int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + {ROOM},) * 2)
"""


@pytest.fixture
def small_group():
    """The list of processes of a new, small memory cgroup, of version 1 or 2, that may not swap."""
    first = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if first else GROUPS) / f"pi-workflows-nb-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if first else "memory.max")
    limit_with_swap = group / ("memory.memsw.limit_in_bytes" if first else "memory.swap.max")
    procs = group / "cgroup.procs"
    try:
        group.mkdir()
        limit.write_text(str(ROOM))
        if limit_with_swap.exists():
            limit_with_swap.write_text(str(ROOM) if first else "0")
        subprocess.run(["sh", "-c", 'echo $$ > "$0"', procs], stderr=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"only a limit of its own can end the node: no memory cgroup can be made or entered here ({error})")
    yield procs
    until(lambda: not procs.read_text().split())
    group.rmdir()


def test_a_node_that_eats_memory_until_the_system_kills_it_hurts_only_itself(host, small_group):
    # The node alone is in the group, so that nobody else can be chosen.
    run = host.ended(hostile(EATS.format(enter=INTO_A_GROUP.format(procs=str(small_group)))), timeout=60)
    assert "SIGKILL (killed from outside; the system does that to a process that uses too" in host.view(run)["reason"]
    assert host.runners(run) == ["crashed"] * 3
    run.cancel()


def test_a_node_that_eats_memory_until_it_gets_none_and_gives_up_hurts_only_itself(host):
    run = host.ended(hostile(EATS.format(enter=INTO_A_LIMIT)), timeout=60)
    assert "SIGABRT (native code gave up) while node bad ran" in host.view(run)["reason"]
    assert host.runners(run) == ["crashed"] * 3
    run.cancel()


def test_when_memory_is_short_the_system_would_rather_kill_a_runner_than_who_serves_it(host):
    runner = psutil.Process(host.pid(host.neighbour))
    served_by = [runner.parent(), psutil.Process(host.server.status()["pid"])]

    def adjustment(process):
        return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())

    assert [adjustment(runner)] * 2 == [min(1000, adjustment(process) + 500) for process in served_by]


def test_a_node_that_runs_into_a_limit_of_its_own_fails_with_its_lines(host):
    run = host.ended(
        hostile("""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        kept = []
        while True:
            kept.append(b"m" * (64 << 20))
        """)
    )
    assert run.output == ["failed", None]
    error = host.step(run)[1]
    assert error.startswith("MemoryError")
    assert 'kept.append(b"m" * (64 << 20))' in error
