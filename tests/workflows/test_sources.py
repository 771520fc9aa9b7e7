"""Frozen sources are made in one real process and brought to life in another that has none of the first one's files."""

from __future__ import annotations

import json
import linecache
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from textwrap import dedent

import pytest

from pi_workflows_nb.wire.errors import SourceError
from pi_workflows_nb.workflows import sources
from pi_workflows_nb.workflows.captures import MAX_CAPTURE_BYTES
from pi_workflows_nb.workflows.definition import Workflow
from pi_workflows_nb.workflows.discovery import text_digest
from pi_workflows_nb.workflows.effects import manual_effect
from pi_workflows_nb.workflows.sources import captures, freeze, load, sign, signing_key, source_identity, verify_mac

ROOT = Path(__file__).parents[2]
KEY = b"k" * 32

CELLS = """
import linecache, sys
from dataclasses import dataclass
from functools import cache
import pi_workflows_nb.workflows.definition as definition
from pi_workflows_nb.workflows.effects import idempotent_effect
import shop
from shop.prices import price
import statistics

RATES = {"vat": 2}
SEEN = []

class TooDear(ValueError):
    pass

@dataclass
class Order:
    n: int
    note: str = "-"

@cache
def square(n):
    return n * n

def helper(n):
    return price(n) * RATES["vat"]

wf = definition.Workflow("shop", start_at="total", input=Order, title=lambda value, name: f"{name} {value['n']}")

@wf.compute
def total(ctx):
    SEEN.append(ctx["n"])
    mean = statistics.mean([1, 3])
    return {"total": helper(ctx["n"]), "square": square(3), "tax": shop.tax(1), "seen": SEEN, "mean": mean}

@wf.compute
def refuse(ctx):
    raise TooDear(f"{SEEN} is too dear")   # this very line

wf.edge("total", "refuse")
effect = idempotent_effect("ls")
wf.shell("list", exec=lambda ctx: {"command": "ls"}, effect=effect, parse=lambda result: result["stdout"])
wf.edge("refuse", "list")

def agent(request):
    return {"asked": request, "seen": SEEN}
"""

FREEZE = """
import json, linecache, sys
from pathlib import Path
sys.path[:0] = [ROOT, str(Path.cwd())]
from pi_workflows_nb.workflows import sources
name = "/tmp/ipykernel_1234/567.py"
text = Path("cells.txt").read_text()
linecache.cache[name] = (len(text), None, text.splitlines(True), name)
exec(compile(text, name, "exec"))
frozen = sources.freeze(wf, agent=agent, project=Path.cwd())
assert sys.modules["shop"] is shop
import cloudpickle
assert not cloudpickle.list_registry_pickle_by_value()
print(json.dumps(sources.sign(frozen, b"k" * 32)))
"""

LOAD = """
import json, sys, traceback
sys.path[:0] = [ROOT]
from pi_workflows_nb.workflows import inputs, sources, validation
frozen = json.load(sys.stdin)
assert sources.verify_mac(frozen, b"k" * 32)
loaded = sources.load(frozen)
wf = loaded.workflow
validation.validate(wf)
answer = {
    "total": wf.nodes["total"].fn({"n": 5}),
    "agent": loaded.agent("?"),
    "input": inputs.normalize_input(wf, {"n": 1}),
    "title": inputs.make_title(wf, {"n": 1}),
    "command": wf.nodes["list"].exec(None),
    "parsed": wf.nodes["list"].parse({"stdout": "x"}),
    "imported": [name for name in sys.modules if name.startswith(("shop", "pandas", "IPython", "sqlite3"))],
}
try:
    wf.nodes["refuse"].fn(None)
except ValueError as error:
    answer["traceback"] = traceback.format_exc()
print(json.dumps(answer))
"""


def child(program: str, folder: Path, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program.replace("ROOT", repr(str(ROOT)))],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """What another process makes of a workflow whose notebook and modules are gone."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("def tax(n):\n    return n + 19\n")
    (folder / "shop" / "prices.py").write_text("BASE = 10\n\ndef price(n):\n    return n * BASE\n")
    (folder / "cells.txt").write_text(CELLS)
    frozen = child(FREEZE, folder)
    shutil.rmtree(folder)
    folder.mkdir()
    return json.loads(frozen), json.loads(child(LOAD, folder, frozen))


def test_objects_of_cells_and_local_modules_work_elsewhere(shipped):
    _, answer = shipped
    assert answer["total"] == {"total": 100, "square": 9, "tax": 20, "seen": [5], "mean": 2}
    assert answer["input"] == {"n": 1, "note": "-"}
    assert answer["title"] == "shop 1"
    assert answer["command"] == {"command": "ls"}
    assert answer["parsed"] == "x"


def test_agent_and_nodes_share_the_globals_of_their_cells(shipped):
    assert shipped[1]["agent"] == {"asked": "?", "seen": [5]}


def test_tracebacks_show_the_lines_of_the_cell(shipped):
    text = shipped[1]["traceback"]
    assert 'File "/tmp/ipykernel_1234/567.py", line' in text
    assert "# this very line" in text


def test_loading_imports_nothing_heavy(shipped):
    assert shipped[1]["imported"] == []


def test_what_is_frozen(shipped):
    frozen, _ = shipped
    assert set(frozen) == {"python", "text", "pickle", "mac"}
    assert frozen["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert "def total(ctx):" in frozen["text"]
    assert frozen["text"].count("def total") == 1
    assert len(frozen["pickle"]) < 40_000


def test_signature_covers_everything(shipped):
    frozen, _ = shipped
    assert verify_mac(frozen, KEY)
    assert not verify_mac(frozen, b"x" * 32)
    for field in ("python", "text", "pickle"):
        assert not verify_mac({**frozen, field: "other"}, KEY)
    for mac in ("", None, "é"):
        assert not verify_mac({**frozen, "mac": mac}, KEY)


def test_signing_key(tmp_path):
    home = tmp_path / "home"
    keys = []
    threads = [threading.Thread(target=lambda: keys.append(signing_key(home))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32
    assert [path.name for path in home.iterdir()] == [sources.KEY_FILE]
    assert stat.S_IMODE((home / sources.KEY_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    (home / sources.KEY_FILE).write_bytes(b"short")
    with pytest.raises(SourceError, match=r"is not a key that signs sources; move it away"):
        signing_key(home)


def workflow(fn) -> Workflow:
    wf = Workflow("w", start_at="a")
    wf.compute(name="a")(fn)
    return wf


LOCK = threading.Lock()
BIG = b"x" * (MAX_CAPTURE_BYTES + 1)
FINE = b"x" * 1000


def test_captured_variables_are_listed():
    def helper(n):
        return FINE

    wf = workflow(lambda ctx: helper(1))
    wf.action(name="b", effect=manual_effect("x"))(lambda ctx: (FINE, os))
    wf.edge("a", "b")
    found = captures(wf)
    assert [(capture.name, capture.used_by) for capture in found.variables] == [
        ("FINE", ("function 'test_captured_variables_are_listed.<locals>.helper'", "node 'b'"))
    ]
    assert 1000 < found.variables[0].bytes < 1100
    assert captures(workflow(lambda ctx: 1)).variables == ()


def test_large_captures_are_refused_by_name():
    with pytest.raises(SourceError, match=r"node 'a' uses the variable 'BIG', which takes more than 1 MiB"):
        freeze(workflow(lambda ctx: len(BIG)))
    inner = "y" * (MAX_CAPTURE_BYTES + 1)
    with pytest.raises(SourceError, match=r"the agent uses the variable 'inner', which takes more than 1 MiB"):
        freeze(None, agent=lambda request: inner)


def test_what_cannot_be_shipped_is_named():
    with pytest.raises(SourceError, match=r"node 'a' uses the variable 'LOCK' \(a lock\).*Make it inside the function"):
        freeze(workflow(lambda ctx: LOCK.locked()))
    with (
        socket.socket() as connection,
        pytest.raises(SourceError, match=r"node 'a' uses the variable 'connection' \(a socket\)"),
    ):
        freeze(workflow(lambda ctx: connection.fileno()))

    def default(ctx, thread=threading.current_thread()):  # noqa: B008
        return thread

    with pytest.raises(SourceError, match=r"node 'a' uses the variable 'thread' \(a _MainThread\)"):
        freeze(workflow(default))


class Holder:
    """A callable that holds on to something."""

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, ctx):
        return 1


def test_what_cannot_be_shipped_inside_an_object():
    with pytest.raises(SourceError, match=r"the workflow cannot be sent to a runner: .*lock.*must be plain data"):
        freeze(workflow(Holder()))


def test_the_server_stays_at_home():
    from pi_workflows_nb.server import clock

    kind = type("Server", (), {"__module__": clock.__name__})
    server = kind()
    held = {"deep": [server]}
    with pytest.raises(SourceError, match=r"node 'a' uses the variable 'held'.*a Server belongs to the notebook's own"):
        freeze(workflow(lambda ctx: held))


def test_text_is_none_where_python_cannot_tell():
    namespace: dict = {}
    exec("def made(ctx):\n    return 1", namespace)
    assert freeze(workflow(namespace["made"]))["text"] is None


def test_other_python_is_refused():
    frozen = freeze(workflow(lambda ctx: 1))
    with pytest.raises(SourceError, match=r"frozen by Python 3\.9 and cannot be loaded by 3\.\d+"):
        load({**frozen, "python": "3.9"})


def test_damaged_pickle_is_refused():
    with pytest.raises(SourceError, match=r"the source cannot be loaded"):
        load({"python": sources.PYTHON, "text": None, "pickle": "AAAA", "mac": ""})


TEXT = dedent(
    """
    from dataclasses import dataclass
    import pi_workflows_nb.workflows.definition as definition

    @dataclass
    class Order:
        n: "int"

    wf = definition.Workflow("cell", start_at="a", input=Order)

    @wf.compute
    def a(ctx):
        raise KeyError(__name__)  # from the text
    """
)


def test_source_that_is_text():
    frozen = sign(freeze(None, text=TEXT, agent=lambda request: request + 1), KEY)
    assert verify_mac(frozen, KEY)
    assert frozen["text"] == TEXT
    loaded = load(frozen, filename="/nowhere/cell.workflow.py")
    assert loaded.agent(1) == 2
    from pi_workflows_nb.workflows.inputs import normalize_input

    assert normalize_input(loaded.workflow, {"n": 1}) == {"n": 1}
    linecache.checkcache()
    try:
        loaded.workflow.nodes["a"].fn(None)
    except KeyError as error:
        shown = traceback.format_exc()
        name = error.args[0]
    assert 'File "/nowhere/cell.workflow.py", line 13' in shown
    assert "# from the text" in shown
    assert name in sys.modules


def test_agent_alone():
    loaded = load(freeze(None, agent=lambda request: request * 2))
    assert loaded.workflow is None
    assert loaded.agent(2) == 4


MAKE = "import pi_workflows_nb.workflows.definition as d\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MAKE + "!ls", r"<workflow w>, line 2: .*plain Python"),
        (MAKE + "\n1/0", r"<workflow w>, line 3: running it raised ZeroDivisionError"),
        (MAKE + "raise SystemExit(2)", r"<workflow w>, line 2: running it raised SystemExit"),
        (MAKE + "d.Workflow('status', start_at='a')", r"<workflow w>, line 2: 'status' cannot be the name"),
        (MAKE, r"<workflow w>: no workflow is made; it needs a line such as wf = pw\.Workflow"),
        (
            MAKE + "a = d.Workflow('x', start_at='a'); b = d.Workflow('y', start_at='a')",
            r"<workflow w>: several workflows are made \('x', 'y'\)",
        ),
    ],
)
def test_text_that_makes_no_workflow(text, said):
    before = set(sys.modules)
    with pytest.raises(SourceError, match=said):
        load(freeze(None, text=text), name="w")
    assert set(sys.modules) == before


def test_name_decides_between_several():
    text = MAKE + "a = d.Workflow('x', start_at='a'); b = again = d.Workflow('y', start_at='a')"
    assert load(freeze(None, text=text), name="y").workflow.name == "y"


def test_object_or_text_not_both():
    with pytest.raises(SourceError, match="not both"):
        freeze(workflow(lambda ctx: 1), text="x")


def test_identity_of_an_object():
    wf = workflow(lambda ctx: 1)
    frozen = freeze(wf)
    assert source_identity(wf, frozen) == {"type": "file", "ref": "inline:w", "revision": text_digest(frozen["text"])}
    assert source_identity(wf)["revision"] == source_identity(wf, {**frozen, "text": None})["revision"]
    assert len(source_identity(wf)["revision"]) == 64
