"""Workflows and runs as text, HTML and Mermaid: the same facts, and nothing in them that is not data."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pi_workflows_nb.notebook import graph_svg, mermaid, representations
from pi_workflows_nb.notebook.graph_layout import graph_of
from pi_workflows_nb.notebook.open_state import open_state
from pi_workflows_nb.notebook.run_picture import NodePicture, RunPicture

HOSTILE = [
    "<script>alert(1)</script>",
    '"]; click n0 href "javascript:alert(1)" _self',
    "%%{init: {'securityLevel': 'loose'}}%%",
    "`**bold**` [link](javascript:x)",
    "a\nn0 --> n9\nclick n0 call steal()",
    "#quot;#lt;img onerror=x#gt;",
    "end",
    "1. item",
    "- item",
    "<img src=https://example.org/x.png onerror=alert(1)>",
    "| pipe | {curly} ((round)) >flag]",
    "\u202e right to left",
    "é 漢字 🙂",
    "",
]
VOID = {"br", "img", "hr", "meta", "link", "input"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def snapshot(name="w", label="ok", node="a"):
    return {
        "name": name,
        "startAt": node,
        "nodes": {node: {"nodeType": "agent"}, "b": {"nodeType": "compute"}, "c": {"nodeType": "checkpoint"}},
        "edges": [
            {"from": node, "switch": {"on": "$.route", "cases": {label: "b", "other": "c"}}},
            {"from": "b", "to": node},
        ],
    }


def picture(text):
    return RunPicture(
        run_id="run-1",
        workflow=text,
        title=text,
        status="failed",
        reason=text,
        error=text,
        steps=2,
        created_at=0,
        finished_at=4_000,
        graph=graph_of(snapshot(text, text, "a")),
        current="b",
        nodes={"a": NodePicture("completed", 2, 0, 1_000), "b": NodePicture("failed", 1, 1_000, 4_000)},
        taken={("a", "b")},
    )


def harmless(html):
    page = Page(html)
    assert not {"script", "img", "iframe", "object", "embed", "link", "a", "form", "foreignobject"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in {"href", "src", "xlink:href", "action"}
        assert "url(" not in (value or "")
        assert "javascript:" not in (value or "") or name == "aria-label"
    return page


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_workflow_are_data_in_html(text):
    run = harmless(representations.run_html(picture(text), note=text))
    assert text.strip() in run.text or not text.strip()
    workflow = harmless(representations.workflow_html(text, graph_of(snapshot(text, text))))
    assert "agent" in workflow.text


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_workflow_are_data_in_mermaid(text):
    for chart in (mermaid.of_run(picture(text)), mermaid.of_graph(graph_of(snapshot(text, text, "a")))):
        well_formed(chart)


LINE = re.compile(
    r"""flowchart\ TD
    |\ {4}n\d+(\["|\{\{"|\("|\[\[")LABEL("\]|"\}\}|"\)|"\]\])(:::\w+)?
    |\ {4}n\d+\ (-->|-\.->)(\|"LABEL"\|)?\ n\d+
    |\ {4}classDef\ \w+\ fill:\#[0-9a-f]{6},stroke:\#[0-9a-f]{6},color:\#ffffff
    |\ {4}linkStyle\ [\d,]+\ stroke-width:3px""".replace("LABEL", r"(?:[^\W_]|(?<=[^\W_])_(?=[^\W_])|\ |\#\d+;)*"),
    re.VERBOSE,
)


def well_formed(chart):
    for line in chart.removesuffix("\n").split("\n"):
        assert LINE.fullmatch(line), line


@given(st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_out_of_a_label(text):
    chart = mermaid.of_graph(graph_of(snapshot("w", text)))
    well_formed(chart)
    harmless(graph_svg.of_graph(graph_of(snapshot("w", text))))


def test_a_label_can_be_read_back():
    text = 'open_ticket: 100% #1 "now" _x_'
    shown = re.sub(r"#(\d+);", lambda match: chr(int(match[1])), mermaid.label(text))
    assert shown == text
    assert mermaid.label("open_ticket 7") == "open_ticket 7"


def test_a_run_is_drawn_with_its_way_and_states(filled):
    run = open_state(filled).get_run("run-done")
    bundle = run._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "text/vnd.mermaid"}
    text = bundle["text/plain"]
    assert text.startswith("First · completed · 3 steps · 4.0 s")
    assert re.search(r"judge\s+agent\s+completed ×2\s+1.0 s", text)
    assert re.search(r"ask\s+checkpoint\s+–", text)
    chart = bundle["text/vnd.mermaid"]
    assert '"judge #215;2"):::completed' in chart
    assert "linkStyle 0,1 stroke-width:3px" in chart
    page = harmless(bundle["text/html"])
    assert {"svg", "table"} <= set(page.tags)
    for word in ("First", "triage", "completed", "judge", "250 ms"):
        assert word in page.text


def test_a_waiting_run_says_where_it_waits(filled):
    run = open_state(filled).get_run("run-waits")
    assert repr(run) == "<Run run-waits: triage · waiting · 1 step · " + repr(run).split(" · ", 3)[3]
    assert "at ask" in repr(run)
    assert '{{"ask"}}:::waiting' in run._repr_mimebundle_()["text/vnd.mermaid"]


def test_a_continuation_shows_the_whole_chain(filled):
    text = open_state(filled).get_run("run-asks")._repr_mimebundle_()["text/plain"]
    assert "completed · 3 steps · 12.0 s" in text
    assert "read   action      completed" in text


def test_an_error_is_shown_as_text(filled):
    page = harmless(open_state(filled).get_run("run-failed")._repr_html_())
    assert "ValueError: <b>no</b>" in page.text


def test_large_graphs_stay_readable():
    many = 1_000
    nodes = {f"n{number}": {"nodeType": "compute"} for number in range(many)}
    edges = [{"from": f"n{number}", "to": f"n{number + 1}"} for number in range(many - 1)]
    graph = graph_of({"name": "long", "startAt": "n0", "nodes": nodes, "edges": edges})
    assert list(graph.nodes)[:3] == ["n0", "n1", "n2"]
    html = representations.workflow_html("long", graph)
    assert "and 800 more nodes" in html
    assert len(html) < 100_000
    assert graph_svg.of_graph(graph) == ""
    assert "750 more nodes" in mermaid.of_graph(graph)


def test_the_html_stands_alone():
    html = representations.run_html(picture("x"))
    assert "<style" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "class=" not in html
