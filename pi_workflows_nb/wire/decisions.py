"""What a person's answer to a decision must look like; the same rule for whoever writes, asks and answers one."""

from __future__ import annotations

from typing import Any

from .errors import WorkflowInputError


def check_response(choices: dict[str, Any], response: object) -> dict[str, Any]:
    """Give `{"choice", "input"?}` as it is stored; `WorkflowInputError`, which says what to change, for another answer.

    `choices` maps a name to its `label` and, where the choice takes a text, `input` (name, prompt, minLength,
    maxLength). The input of an answer is `{name: text}`, or the text alone.
    """
    if isinstance(response, str):
        response = {"choice": response}
    if not isinstance(response, dict) or not response.keys() <= {"choice", "input"}:
        raise WorkflowInputError(f"the answer is {_listed(choices)}, or a dict with choice and input")
    name, given = response.get("choice"), response.get("input")
    choice = choices.get(name) if isinstance(name, str) else None
    if choice is None:
        raise WorkflowInputError(f"{str(name)[:200]!r} is no choice; it is {_listed(choices)}")
    wanted = choice.get("input")
    if wanted is None:
        if given is not None:
            raise WorkflowInputError(f"choice {name!r} takes no input; leave it out")
        return {"choice": name}
    text = given.get(wanted["name"]) if isinstance(given, dict) and len(given) == 1 else given
    if not isinstance(text, str):
        raise WorkflowInputError(f"choice {name!r} needs the text {wanted['name']!r}: {wanted['prompt']}")
    least, most = wanted["minLength"], wanted["maxLength"]
    if not least <= len(text) <= most:
        raise WorkflowInputError(
            f"{wanted['name']!r} of choice {name!r} has {len(text):,} characters; it may have {least:,} to {most:,}"
        )
    return {"choice": name, "input": {wanted["name"]: text}}


def _listed(choices: dict[str, Any]) -> str:
    return " or ".join(repr(name) for name in choices)
