"""Real kernels for tests: started by exec with folders of their own, asked cell by cell."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.manager import KernelManager


class Kernel:
    """One ipykernel; `run` executes a cell and gives what it printed, or raises what it raised.

    What the process itself says goes to the file `log`, if one is given.
    """

    def __init__(self, folder: Path, log: Path | None = None) -> None:
        self._folder = folder
        self._log = log
        self._manager = KernelManager()
        self._start()

    def _start(self) -> None:
        environment = {
            **os.environ,
            "IPYTHONDIR": str(self._folder / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(self._folder / "runtime"),
            "PI_WORKFLOWS_HOME": str(self._folder / "h"),
        }
        with open(self._log or os.devnull, "ab") as log:
            said = {"stdout": log, "stderr": log} if self._log else {}
            self._manager.start_kernel(env=environment, cwd=str(self._folder), **said)
        self._client = self._manager.blocking_client()
        self._client.start_channels(hb=False)  # which would open others when the kernel is silent for a while
        self._client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        """The kernel's process."""
        return int(self._manager.provisioner.process.pid)

    def begin(self, code: str) -> str:
        """Start a cell and do not wait for it; gives the id to wait for."""
        return str(self._client.execute(code))

    def end(self, message_id: str, timeout: float = 60.0) -> str:
        """What the cell printed; `AssertionError` with its traceback when it raised."""
        printed = []
        raised: CellError | None = None
        give_up = time.monotonic() + timeout
        while True:
            message = self._client.get_iopub_msg(timeout=max(0.1, give_up - time.monotonic()))
            if message["parent_header"].get("msg_id") != message_id:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                # Raised when the kernel is idle again: until then it aborts whatever is asked next.
                raised = CellError(content["ename"], "\n".join(content["traceback"]))
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                if raised is not None:
                    raise raised
                return "".join(printed)

    def run(self, code: str, timeout: float = 60.0) -> str:
        """Execute a cell."""
        return self.end(self.begin(code), timeout)

    def answer(self, text: str, timeout: float = 60.0) -> None:
        """Give the cell, when it asks for input, a line."""
        self._client.get_stdin_msg(timeout=timeout)
        self._client.input(text)

    def interrupt(self) -> None:
        """Kernel → Interrupt."""
        self._manager.interrupt_kernel()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._client.stop_channels()
        os.kill(self.pid, signal.SIGKILL)
        self._manager.provisioner.process.wait()

    def restart_after_kill(self) -> None:
        """A new kernel, as JupyterLab would start one."""
        self._manager.cleanup_resources(restart=True)
        self._start()

    def restart(self) -> None:
        """Kernel → Restart."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=False, restart=True)
        self._start()

    def close(self) -> None:
        """End the kernel as Jupyter does."""
        self._client.stop_channels()
        if self._manager.provisioner.process.poll() is None:
            self._manager.shutdown_kernel(now=False)
        else:
            # Its manager would interrupt the whole process group, and with it what a killed kernel left behind.
            self._manager.cleanup_resources()
        self._manager.context.destroy()


class CellError(AssertionError):
    """What a cell raised; `name` is the class's."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel that is gone afterwards, whatever happened."""
    started = Kernel(folder)
    try:
        yield started
    finally:
        started.close()
