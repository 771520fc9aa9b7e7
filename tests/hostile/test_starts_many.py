"""Starting and stopping the server again and again in one kernel leaves nothing: the short form, or 200 by `--long`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = """
import gc, json, os, sys, threading, time
import psutil
import pi_workflows_nb as pw

folder, placement, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
wf = pw.Workflow("one", start_at="step")
wf.compute(name="step")(lambda ctx: 1)
me = psutil.Process()

def cycle(number):
    server = pw.start(database=f"{folder}/s.sqlite", project=folder, server=placement)
    if number % 4 == 0:
        assert server.run(wf).wait(timeout=30).output == 1
        server.runs()
    server.stop()

def held():
    for _ in range(100):
        gc.collect()
        if threading.active_count() == 1 and not me.children(recursive=True):
            break
        time.sleep(0.02)
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "processes": [" ".join(child.cmdline()) for child in me.children(recursive=True)],
        "descriptors": sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                              if os.path.exists(f"/proc/self/fd/{name}")),
        "objects": len(gc.get_objects()),
        "memory": me.memory_full_info().uss,
    }

for number in range(max(8, count // 4)):
    cycle(number)
before = held()
for number in range(count):
    cycle(number)
print(json.dumps([before, held()]))
"""


@pytest.mark.timeout(600)
def test_starts_and_stops_leave_nothing(tmp_path, placement, long_form):
    count = 200 if long_form else 20 if placement == "thread" else 6
    told = subprocess.run(
        [sys.executable, "-c", KERNEL, str(tmp_path), placement, str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    before, after = json.loads(told.stdout)
    assert after["threads"] == before["threads"] == ["MainThread"]
    assert after["processes"] == before["processes"] == []
    assert after["descriptors"] == before["descriptors"]
    assert after["objects"] - before["objects"] < 10 * count, "objects that nobody needs are kept"
    # Of twenty starts the allocator's own moods are the larger part; two hundred show a leak.
    assert after["memory"] - before["memory"] < (4 << 20) + 5_000 * count
    print(f"{count} starts and stops: {after['objects'] - before['objects']:+} objects,"
          f" {after['memory'] - before['memory']:+,} bytes")  # fmt: skip
    beside = sorted(path.name for path in tmp_path.iterdir())
    assert beside == ["s.sqlite", "s.sqlite.d"], "the file is at rest"
    assert sorted(path.name for path in (tmp_path / "s.sqlite.d").rglob("*.log") if path.stat().st_size > 10_000) == []
