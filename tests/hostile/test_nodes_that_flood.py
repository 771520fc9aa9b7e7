"""Nodes that print, return or use too much: cut, carried, or ended, and the server does not grow with them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
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
    assert all(path.stat().st_size < 4 * MAX_BYTES for path in log_of(host, run))


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


CGROUPS = Path("/sys/fs/cgroup/memory")
LIMIT = 300 << 20
EATS = """
import os
kept = []
while True:
    kept.append(b"m" * (8 << 20))
"""
IN_A_CGROUP = """
import sys
from pathlib import Path
from tests.hostile.nodes import Host, hostile
from tests.hostile.test_nodes_that_flood import EATS

folder, home, placement = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
host = Host(folder, home, placement)
run = host.ended(hostile(EATS), timeout=60)
print(host.runners(run), host.view(run)["reason"])
assert host.runners(run) == ["crashed"] * 3
assert "SIGKILL (killed from outside; the system does that to a process that uses too much memory)" in \
    host.view(run)["reason"]
run.cancel()
host.check_unnoticed(0)
host.close()
print("unhurt")
"""


@pytest.fixture
def small_memory(long_form):
    """A memory cgroup of 300 MB, as a function that puts a process into it."""
    if not long_form:
        pytest.skip("whom the system kills in so small a group is not always the node: judged in the long form")
    group = CGROUPS / f"pi-workflows-nb-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group / "cgroup.procs"
    until(lambda: not (group / "cgroup.procs").read_text().split())
    group.rmdir()


def test_a_node_that_eats_memory_until_it_is_killed_hurts_only_itself(tmp_path, state_folder, placement, small_memory):
    # The whole house is in the group, so that the system must choose whom to kill.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IN_A_CGROUP), str(tmp_path / "host"), str(state_folder), placement],
        preexec_fn=lambda: small_memory.write_text(str(os.getpid())),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("unhurt\n")


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
