"""The magics, in a real kernel."""

from __future__ import annotations

from tests.notebook.conftest import outputs, printed

CELL = """%%workflow halve
import pi_workflows_nb as pw

wf = pw.Workflow("halve", start_at="half")

@wf.compute
def half(ctx):
    return ctx.input / 2
"""


def test_a_cell_is_a_workflow_and_magics_show_what_there_is(notebook):
    book = notebook(
        "import pi_workflows_nb as pw\nserver = pw.start(database='state.sqlite', project='.')",
        CELL,
        "print(server.run('halve', 10).wait().output, server.run(wf, 4).wait().output)",
        "%pw runs",
        "%pw run halve 3",
        "%%pw_sql -o counted\nselect workflow, count(*) n from runs_v group by 1",
        "print(counted.to_dict('records'))",
        "%pw",
        "first = get_ipython().magics_manager.registry['WorkflowMagics']\n"
        "%load_ext pi_workflows_nb\n%reload_ext pi_workflows_nb\n"
        "print(get_ipython().magics_manager.registry['WorkflowMagics'] is first)",
        "%%pw_sql\nselect 1 as one",
        "server.stop()",
    )
    assert outputs(book.cells[1])[0]["text/vnd.mermaid"].startswith("flowchart TD")
    assert printed(book.cells[2]) == "5.0 2.0\n" or printed(book.cells[2]) == "5 2\n"
    assert "halve" in outputs(book.cells[3])[0]["text/html"]
    assert "halve" in outputs(book.cells[4])[0]["text/plain"]
    assert printed(book.cells[6]) == "[{'workflow': 'halve', 'n': 3}]\n"
    assert "pi-workflows server · running" in outputs(book.cells[7])[0]["text/plain"]
    assert printed(book.cells[8]) == "True\n"
    assert "one" in outputs(book.cells[9])[0]["text/plain"]


def test_mistakes_are_told_in_a_sentence(notebook):
    book = notebook(
        "%load_ext pi_workflows_nb",
        "%pw",
        "import pi_workflows_nb as pw\nserver = pw.start(database='state.sqlite', project='.')",
        "%%workflow halve\n1 +",
        CELL.replace('Workflow("halve"', 'Workflow("other"'),
        "%%workflow\nx = 1",
        "%pw run",
        "%pw run halve {not json",
        "%pw nothing-of-that-id",
        "%%pw_sql\nselect * from nothing",
        "%%pw_sql -x\nselect 1",
        "server.stop()",
        allow_errors=True,
    )

    def said(at):
        return " ".join(
            f"{output.get('ename')} {output.get('evalue')} {output.get('text', '')}"
            for output in book.cells[at].outputs
            if output["output_type"] in {"error", "stream"}
        )

    assert "pw.start()" in said(1)
    assert "SourceError" in said(3)
    assert "line 1" in said(3)
    assert "halve" in said(4)
    assert "NAME" in said(5)
    assert "%pw run NAME" in said(6)
    assert "JSON" in said(7)
    assert "NotFoundError" in said(8)
    assert "QueryError" in said(9)
    assert "VARIABLE" in said(10)
