"""`pi-workflows-nb lab` copies the notebooks, keeps what a person changed, and becomes JupyterLab."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from pi_workflows_nb.viewer import carried
from pi_workflows_nb.viewer.cli import main
from pi_workflows_nb.viewer.lab import copy_notebooks

PROGRAM = [sys.executable, "-c", "from pi_workflows_nb.viewer.cli import main; main()"]


def test_everything_is_copied_once(tmp_path):
    target = tmp_path / "deep" / "down"
    (told,) = copy_notebooks(target)
    assert told.endswith(f"copied to {target}")
    assert (target / carried.QUICKSTART).read_bytes() == (carried.folder() / carried.QUICKSTART).read_bytes()
    assert {path.suffix for path in target.rglob("*") if path.is_file()} <= {".ipynb", ".png", ".svg", ".md"}
    (told,) = copy_notebooks(target)
    assert told == f"the notebooks are in {target}"


def test_a_changed_notebook_is_never_overwritten(tmp_path):
    list(copy_notebooks(tmp_path))
    mine = tmp_path / carried.QUICKSTART
    mine.write_text("mine")
    (tmp_path / "README.md").unlink()
    told = list(copy_notebooks(tmp_path))
    assert mine.read_text() == "mine"
    assert (tmp_path / "README.md").is_file()
    assert any(carried.QUICKSTART in line and "left as it is" in line for line in told)


def test_without_jupyterlab_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["lab", str(tmp_path / "folder")])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install '.[lab]'" in line
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["lab", str(tmp_path / "file" / "folder")])
    assert ended.value.code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def names_served(address):
    """The server says where it is a moment before it listens there."""
    give_up = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(address) as response:
                return {entry["name"] for entry in json.load(response)["content"]}
        except urllib.error.URLError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


def test_jupyterlab_opens_on_the_quickstart(tmp_path, monkeypatch):
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    options = ["--allow-root", "--no-browser", "--port=0", "--ServerApp.ip=127.0.0.1"]
    lab = subprocess.Popen([*PROGRAM, "lab", "nb", "--", *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    late = threading.Timer(60, lab.kill)
    late.start()
    try:
        assert lab.stderr is not None
        found = None
        for line in lab.stderr:
            found = found or re.search(r"(http://127\.0\.0\.1:\d+/lab/tree/\S+)\?token=(\w+)", line)
            if found:
                break
        assert found, "JupyterLab said no address"
        address, token = found.groups()
        assert address.endswith(carried.QUICKSTART)
        root = address.partition("/lab/")[0]
        assert carried.QUICKSTART in names_served(f"{root}/api/contents/?token={token}")
        with urllib.request.urlopen(f"{root}/api/contents/{carried.QUICKSTART}?token={token}") as response:
            cells = json.load(response)["content"]["cells"]
        assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code")
    finally:
        late.cancel()
        lab.send_signal(signal.SIGTERM)
        lab.communicate(timeout=30)
