"""A run in a cell of a real kernel: live while it goes on, static when it has ended, and clicks beside a busy cell."""

from __future__ import annotations

import time

import pytest
from jupyter_client import KernelManager

from tests.notebook.conftest import TRIAGE, outputs, printed

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_a_run_that_ended_is_left_without_a_widget(notebook):
    book = notebook(
        TRIAGE,
        "run = server.run(wf, {'n': 1})\nrun",
        "run.wait()\nNone",
        "run",
        "run.answer('fine').wait()\nprint(run.output)",
        "run",
    )
    first, waiting, again, asked = (outputs(book.cells[at]) for at in (1, 2, 3, 5))
    assert printed(book.cells[4]) == "{'n': 2, 'said': 'fine'}\n"
    for shown in (first, again, asked):
        (bundle,) = shown
        assert set(bundle) == {"text/plain", "text/html", "text/vnd.mermaid"}
        assert "completed" in bundle["text/plain"]
        assert "gate" in bundle["text/vnd.mermaid"]
    (line,) = waiting
    assert set(line) == {"text/plain"}
    assert line["text/plain"].startswith("triage · waiting · 2 steps")
    assert "run.answer(value)" in line["text/plain"]


def test_a_stopped_server_leaves_no_widget_behind(notebook):
    book = notebook(
        TRIAGE,
        "run = server.run(wf, {'n': 1})\nrun",
        "run.wait()\nNone",
        "server.stop()",
        "import threading\nprint([t.name for t in threading.enumerate() if 'pi-workflows' in t.name])",
    )
    (bundle,) = outputs(book.cells[1])
    assert WIDGET not in bundle
    assert "waiting" in bundle["text/plain"]
    assert printed(book.cells[4]) == "[]\n"


class Kernel:
    """A kernel spoken to message by message, as a front end with subshells does."""

    def __init__(self, folder):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=30)
        self.heard = []

    def execute(self, code, wait=True, **metadata):
        message = self.client.session.msg("execute_request", {"code": code, "silent": False, "store_history": True})
        message["content"] |= {"user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
        message["metadata"] |= metadata
        self.client.shell_channel.send(message)
        if wait:
            self.listen(
                lambda m: (
                    m["msg_type"] == "status"
                    and m["parent_header"].get("msg_id") == message["header"]["msg_id"]
                    and m["content"]["execution_state"] == "idle"
                )
            )
        return message["header"]["msg_id"]

    def listen(self, until, seconds=20):
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            try:
                message = self.client.get_iopub_msg(timeout=0.5)
            except Exception:
                continue
            self.heard.append(message)
            if until(message):
                return message
        raise AssertionError([m["msg_type"] for m in self.heard[-20:]])

    def subshell(self):
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        return self.client.get_control_msg(timeout=10)["content"]["subshell_id"]

    def click(self, model, subshell, control):
        wish = {"act": control, "number": 1}
        message = self.client.session.msg("comm_msg", {"comm_id": model, "data": {"method": "custom", "content": wish}})
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)

    def views(self):
        """The models of live views, in the order in which they were shown."""
        return [
            m["content"]["comm_id"]
            for m in self.heard
            if m["msg_type"] == "comm_open" and "picture" in m["content"]["data"].get("state", {})
        ]

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


@pytest.fixture
def kernel(tmp_path):
    started = Kernel(tmp_path)
    yield started
    started.close()


SLOW = (
    TRIAGE
    + """
import time
slow = pw.Workflow("slow", start_at="sleep")

@slow.compute
def sleep(ctx):
    ctx.cancelled.wait(60)

run = server.run(slow)
"""
)


def test_a_click_is_carried_out_beside_a_busy_cell(kernel):
    subshell = kernel.subshell()
    kernel.execute(SLOW)
    kernel.execute("run", cellId="cell-1")
    kernel.execute("time.sleep(8)", wait=False)
    (view,) = kernel.views()
    clicked = time.monotonic()
    kernel.click(view, subshell, "cancel")
    done = kernel.listen(
        lambda m: m["msg_type"] == "update_display_data" and "cancelled" in m["content"]["data"]["text/plain"]
    )
    assert time.monotonic() - clicked < 4
    assert WIDGET not in done["content"]["data"]


def test_running_a_cell_again_closes_its_old_view(kernel):
    kernel.execute(SLOW)
    kernel.execute("run", cellId="cell-1")
    kernel.execute("run", cellId="cell-2")
    kernel.execute("run", cellId="cell-1")
    first, second, third = kernel.views()
    closed = kernel.listen(lambda m: m["msg_type"] == "comm_close" and m["content"]["comm_id"] == first)
    assert closed
    kernel.execute("run.cancel(); run.wait()\nNone")
    ended = [
        m for m in kernel.heard if m["msg_type"] == "update_display_data" and "cancelled" in str(m["content"]["data"])
    ]
    assert len([m for m in ended if "text/vnd.mermaid" in m["content"]["data"]]) == 2
    assert {second, third} <= {m["content"]["comm_id"] for m in kernel.heard if m["msg_type"] == "comm_close"}
