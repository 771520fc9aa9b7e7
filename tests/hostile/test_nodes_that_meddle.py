"""Nodes that take their own process apart, or leave others behind: the next step is none the wiser, nothing is left."""

from __future__ import annotations

import psutil
import pytest

from tests.hostile.nodes import cell, hostile, printed
from tests.hostile.surroundings import until

MEDDLES = {
    "descriptors": "import os\nos.closerange(0, 51)",
    "descriptors, others in their place": (
        "import os\nos.closerange(0, 51)\nglobal kept\nkept = [open(os.devnull) for _ in range(10)]"
    ),
    "folder": "import os, tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)",
    "umask": "import os\nos.umask(0o777)\nprint('under it')",
    "signal handlers": "import ctypes\nfor number in range(1, 65):\n    ctypes.CDLL(None).signal(number, 1)",
    "recursion limit": (
        "import sys\nfor limit in range(1, 100):\n    try: sys.setrecursionlimit(limit)\n"
        "    except RecursionError: continue\n    break"
    ),
    "json and time": (
        "import json, time, os\njson.dumps = json.loads = time.time = time.monotonic = os.getpid = os._exit = None"
    ),
    "streams": "import sys\nsys.stdout.close()\nsys.stderr.close()\nsys.stdin.close()",
    "environment": "import os\nos.environ.clear()",
    "modules": "import sys\nfor name in ('json', 'msgspec', 'os', 'pi_workflows_nb.wire'):\n    del sys.modules[name]",
    "garbage": "import gc\ngc.disable()\ngc.set_threshold(1)\ngc.callbacks.append(lambda *_: 1 / 0)\ngc.enable()",
    "hooks": (
        "import sys, threading\ndef hook(*_):\n    raise SystemExit\n"
        "sys.excepthook = sys.unraisablehook = threading.excepthook = hook\nsys.settrace(hook)"
    ),
    "switch interval": "import sys\nsys.setswitchinterval(100)",
    "descriptor limit": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "file size limit": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nprint('lost')",
}


@pytest.mark.parametrize("what", MEDDLES)
def test_what_a_node_does_to_its_process_does_not_keep_the_run_from_going_on(host, what):
    run = host.ended(hostile(MEDDLES[what] + "\nreturn 'done'"))
    # What is called at each line is called for the node's own, also on the way of its value out.
    assert run.output == (["failed", None] if what == "hooks" else ["ok", "done"])
    assert host.runners(run) == ["exited"]
    if what not in ("descriptor limit", "file size limit"):
        assert "after" in printed(run, "after").splitlines()


@pytest.mark.parametrize("define", ["def", "async def"])
def test_async_nodes_work_again_after_one_closed_all_descriptors(host, define):
    made = cell(f"""
import pi_workflows_nb as pw
wf = pw.Workflow("closes", start_at="first")

@wf.compute
async def first(ctx):
    import asyncio
    await asyncio.sleep(0)

@wf.compute
{define} closes(ctx):
    import os
    os.closerange(0, 51)
    return "closed"

@wf.compute
async def last(ctx):
    import asyncio
    await asyncio.sleep(0.01)
    return "slept"

wf.edge("first", "closes")
wf.edge("closes", switch="$result.outcome", cases={{"ok": "again", "failed": "again"}})

@wf.compute
async def again(ctx):
    import asyncio
    await asyncio.sleep(0.01)

wf.edge("again", switch="$result.outcome", cases={{"ok": "last", "failed": "last"}})
""")
    run = host.ended(made["wf"])
    assert run.output == "slept"
    assert host.runners(run) == ["exited"]


LEAVES = {
    "a forked child": "if os.fork() == 0:\n    time.sleep(600)",
    "a forked child that comes back": "os.fork()",
    "a forked child that raises": "if os.fork() == 0:\n    raise ValueError('in the child')",
    "a forked child that goes on by itself": (
        "if os.fork() == 0:\n    ctx.outputs\n    for _ in range(3): print('child')\n    return 'child'"
    ),
    "a session": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "a daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.environ.clear()\n"
        "        os.execve('/bin/sleep', ['quiet', '600'], {})\n    os._exit(0)"
    ),
    "a tree": ("for _ in range(3):\n    if os.fork() == 0:\n        os.setpgid(0, 0); os.fork(); time.sleep(600)"),
    "children deaf to signals": (
        "if os.fork() == 0:\n    for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n    time.sleep(600)"
    ),
    "a process of multiprocessing": (
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=time.sleep, args=(600,)).start()"
    ),
    "a pool": (
        "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing\n"
        "global pool\npool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork'))\n"
        "assert list(pool.map(abs, [-1, -2])) == [1, 2]"
    ),
    "a stopped child": "if os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGSTOP)\n    time.sleep(600)",
}


@pytest.mark.parametrize("what", LEAVES)
def test_what_a_node_leaves_behind_is_gone_with_its_runner(host, what):
    known = set(psutil.pids())
    run = host.ended(hostile("import os, signal, subprocess, sys, time\n" + LEAVES[what] + "\nreturn os.getpid()"))
    outcome, pid = run.output
    assert outcome == "ok"
    assert pid == host.rows("SELECT pid FROM run_workers WHERE run_id = ?", run.id)[0][0]
    assert host.runners(run) == ["exited"]
    assert host.rows("SELECT count(*) FROM run_steps WHERE run_id = ?", run.id) == [(3,)]
    until(lambda: not [one for one in set(psutil.pids()) - known if is_left(one)], 5)


def is_left(pid):
    """Whether a process is a node's, by what such a node may still call itself."""
    try:
        one = psutil.Process(pid)
        return one.name() in ("pi-runner", "sleep") and one.cmdline()[-1:] == ["600"]
    except psutil.Error:
        return False
