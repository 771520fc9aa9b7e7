"""A real JupyterLab with settings of its own, and a real Chromium to look at it with."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
TOKEN = "tests"
START_SECONDS = 60
IDLE = "Python 3 (ipykernel) | Idle"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# It keeps to itself; in a container there is no sandbox for it.
QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight stay in the page, where a test looks for them.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}


def chromium() -> str | None:
    """The system's Chromium, if there is one."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


class Lab:
    """JupyterLab on a folder; kernels of it have their default state file in `home`."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder / "notebooks"
        self.home = home
        self.folder.mkdir(parents=True)
        for name, values in SETTINGS.items():
            path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY_"))},
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "PI_WORKFLOWS_HOME": str(home),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.folder,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "IdentityProvider.token": TOKEN,
            "LabApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
        }
        self._log = folder / "jupyterlab.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                self._ask("GET", "status")
            except OSError:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    self._process.kill()
                    self._process.wait()
                    raise AssertionError(f"JupyterLab does not start:\n{self._log.read_text()}") from None
                time.sleep(0.1)
            else:
                return

    def _ask(self, method: str, path: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/{path}"
        request = urllib.request.Request(url, method=method, headers={"Authorization": f"token {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def write(self, name: str, *cells: str) -> None:
        """Make a notebook of code cells."""
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        nbformat.write(book, self.folder / name)

    def url(self, name: str) -> str:
        """The page of one notebook, alone."""
        return f"http://127.0.0.1:{self.port}/doc/tree/{name}?token={TOKEN}&reset"

    def end_kernels(self) -> None:
        """Shut all kernels down, as their notebooks' menu does."""
        for session in self._ask("GET", "sessions"):
            self._ask("DELETE", f"sessions/{session['id']}")

    def close(self) -> None:
        """End."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Book:
    """One notebook in one window. What went wrong in the page is kept in `trouble`."""

    def __init__(self, page: Page, lab: Lab) -> None:
        self.page = page
        self.lab = lab
        self.trouble: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("console", lambda said: self.trouble.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.requests.append(request.url))

    def _dialog(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, name: str) -> None:
        """Open a notebook and wait for its kernel: earlier, Run All would be dropped without a word."""
        self.page.goto(self.lab.url(name))
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.locator("#jp-main-statusbar").get_by_text(IDLE, exact=True).wait_for(timeout=60_000)

    def command(self, name: str) -> Any:
        """What a menu entry does, up to its end."""
        return self.page.evaluate(f"window.jupyterapp.commands.execute({json.dumps(name)}).then(() => null)")

    def run_all(self, *, wait: bool = True) -> None:
        """Run → Run All Cells."""
        if wait:
            self.command("notebook:run-all-cells")
        else:
            self.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def restart_kernel(self) -> None:
        """Kernel → Restart Kernel, confirmed."""
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:restart-kernel')")
        self.page.locator(".jp-Dialog button.jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.wait_idle()

    def output(self, number: int) -> Any:
        """The output area of a code cell, from 0."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-Cell-outputArea")


@contextmanager
def browser_page(**options: Any) -> Iterator[Page]:
    """A window of Chromium that is gone afterwards, with every process of it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(QUIET))
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, **options)
            page.set_default_timeout(30_000)
            yield page
        finally:
            browser.close()
