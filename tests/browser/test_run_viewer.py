"""A run in JupyterLab: steered by its buttons, scrubbed, inspected, answered, and found again by a new kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

START = """
import pi_workflows_nb as pw

server = pw.start(database={path!r}, project=".")
wf = pw.Workflow("five steps", start_at="one", title="From one to five")

for name in ["one", "two", "three", "four"]:
    wf.compute(name)(lambda ctx: {{"said": "here"}})
wf.edge("one", "two")
wf.edge("two", "three")
wf.edge("three", "four")

@wf.action(effect=pw.idempotent_effect("wait"))
def hold(ctx):
    print("holding on")
    import time
    time.sleep(600)

wf.edge("four", "hold")
run = server.run(wf, key="the run")
"""
ASK = """
asks = pw.Workflow("asks", start_at="ask")

def number(answer):
    if not isinstance(answer, int):
        raise ValueError("say a whole number")

@asks.checkpoint(validate=number)
def ask(ctx):
    return "how many?"

asked = server.run(asks, key="the question")
asked.wait()
asked
"""


def chip(area, status):
    return area.locator(".pwnb-head .pwnb-chip", has_text=status)


def pictures(book, name):
    """Keep what a person would see, in light and dark, where a folder for it is named."""
    folder = os.environ.get("PI_WORKFLOWS_NB_SCREENSHOTS")
    if folder:
        for theme in ("Light", "Dark"):
            book.page.evaluate(
                f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
            )
            book.page.wait_for_timeout(800)
            book.page.screenshot(path=Path(folder) / f"{name}-{theme.lower()}.png")


@pytest.mark.slow
def test_a_run_is_steered_scrubbed_and_found_again(lab, book, state_file):
    lab.write("run.ipynb", START.format(path=str(state_file)), "run", ASK, "run.status")
    book.open("run.ipynb")
    book.run_all()
    shown = book.output(1)
    expect(chip(shown, "running")).to_be_visible()
    expect(shown.locator(".pwnb-card")).to_have_count(5)
    expect(shown.locator(".pwnb-where")).to_have_text("step 4 of 4: four")

    slider = shown.get_by_role("slider", name="step")
    slider.fill("2")
    expect(shown.locator(".pwnb-where")).to_have_text("step 3 of 4: three")
    expect(shown.locator('.pwnb-card[aria-label^="four"]')).to_have_attribute("data-status", "")
    expect(shown.locator('.pwnb-card[aria-label^="three"]')).to_have_class("pwnb-card pwnb-current")
    shown.get_by_role("button", name="Live").click()
    expect(shown.locator('.pwnb-card[aria-label^="four"]')).to_have_attribute("data-status", "completed")
    expect(shown.locator('.pwnb-card[aria-label^="hold"]')).to_have_class("pwnb-card pwnb-current")

    shown.get_by_role("tab", name="Output").click()
    shown.locator('.pwnb-card[aria-label^="two"]').press("Enter")
    expect(shown.locator(".pwnb-panel")).to_contain_text('"said": "here"')
    shown.get_by_role("tab", name="Output").press("ArrowRight")
    expect(shown.get_by_role("tab", name="Updates")).to_have_attribute("aria-selected", "true")
    shown.locator('.pwnb-card[aria-label^="two"]').press("Enter")
    for tab, said in {"Effects": "wait", "Events": "node_finished", "Logs": "holding on", "Info": "five steps"}.items():
        shown.get_by_role("tab", name=tab).click()
        expect(shown.locator(".pwnb-panel")).to_contain_text(said)
    pictures(book, "run")

    shown.get_by_role("button", name="Pause").click()
    expect(chip(shown, "paused")).to_be_visible()
    shown.get_by_role("button", name="Resume").click()
    expect(chip(shown, "running")).to_be_visible()

    asked = book.output(2)
    asked.get_by_label("answer").fill('"many"')
    asked.get_by_role("button", name="Send").click()
    expect(asked.get_by_role("alert")).to_contain_text("say a whole number")
    asked.get_by_label("answer").fill("3")
    asked.get_by_label("answer").press("Enter")
    expect(asked.locator(".pwnb")).to_have_count(0)
    expect(asked.get_by_text("completed", exact=True).first).to_be_visible()
    assert book.trouble == []

    book.restart_kernel()
    book.run_all()
    expect(chip(shown, "running")).to_be_visible()
    expect(shown.locator(".pwnb-where")).to_have_text("step 4 of 4: four")
    shown.get_by_role("button", name="Cancel").click()
    expect(shown.get_by_text("cancelled", exact=True).first).to_be_visible()
    expect(shown.locator(".pwnb")).to_have_count(0)
