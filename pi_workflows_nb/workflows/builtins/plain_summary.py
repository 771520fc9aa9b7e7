"""`plain-summary`: an agent says in plain words what a text says."""

from typing import Any

import pi_workflows_nb as pw


def _input(given: Any) -> dict[str, Any]:
    given = {"text": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or not isinstance(given.get("text"), str) or not given["text"].strip():
        raise ValueError("give the text to summarize, as {'text': '…', 'maxWords': 150}")
    if unknown := sorted(given.keys() - {"text", "maxWords"}):
        raise ValueError(f"there is no {unknown[0]!r}; the fields are text and maxWords")
    words = given.get("maxWords", 150)
    if isinstance(words, bool) or not isinstance(words, int) or words < 1:
        raise ValueError(f"maxWords is a whole number of at least 1, not {words!r}")
    return {"text": given["text"], "maxWords": words}


def _summary(value: Any) -> dict[str, str]:
    summary = value.get("summary") if isinstance(value, dict) else value
    if not isinstance(summary, str) or not summary.strip():
        raise ValueError("answer with the summary as a text that is not blank, as {'summary': '…'}")
    return {"summary": summary.strip()}


workflow = pw.Workflow(
    "plain-summary", start_at="summarize", input=_input, title="Plain summary", exits={"done": pw.exit("summarize")}
)


@workflow.agent(name="summarize", expected_output='{"summary": "…"}', validate=_summary)
def _prompt(ctx: pw.Context) -> str:
    return (
        f"Summarize the text below in at most {ctx.input['maxWords']} plain words, for a reader who does not know it: "
        "what it says, what follows from it, and what it leaves open. Add nothing that is not in it.\n\n"
        f"{ctx.input['text']}"
    )
