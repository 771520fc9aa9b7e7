"""Decisions that only a person may take: a typed request, closed choices, perhaps a default after a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pi_workflows_nb.wire import decisions
from pi_workflows_nb.wire.errors import WorkflowDefinitionError, WorkflowInputError
from pi_workflows_nb.workflows.nodes import (
    DEFAULT_TIMEOUT,
    Callback,
    Checkpoint,
    Timeout,
    check_callback,
    check_common,
    check_name,
)

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.compiled import Compiled

BLOCKS: Final = ("paragraph", "section", "bullets", "fields", "preformatted")
MOST_CHARACTERS: Final = 4000
LONGEST_TITLE: Final = 200


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HumanDecision(Checkpoint):
    """A checkpoint whose answer is one of `choices`, by a person; `default` counts `seconds` after it was asked."""

    kind: ClassVar[str] = "human_decision"
    field: ClassVar[str] = "choice"

    audience: str
    choices: dict[str, Any]
    seconds: float | None = None
    default: dict[str, Any] | None = None

    def asked(self, said: Any) -> dict[str, Any]:
        """The request that the node's function gave, whole; `WorkflowDefinitionError` for what is none."""
        label = f"node {self.name!r}"
        given = {"presentation": {"summary": said}} if isinstance(said, str) else said
        if not isinstance(given, dict) or not given.keys() <= {"title", "subject", "presentation"}:
            raise WorkflowDefinitionError(
                f"{label}: its function gives the text to decide on, or a dict with title, subject and presentation"
            )
        title = given.get("title", self.name)
        if not isinstance(title, str) or not 0 < len(title) <= LONGEST_TITLE:
            raise WorkflowDefinitionError(f"{label}: the title is a text of 1 to {LONGEST_TITLE} characters")
        return {
            "audience": self.audience,
            "choices": self.choices,
            "default": self.default,
            "presentation": _presentation(label, given.get("presentation")),
            "subject": given.get("subject"),
            "title": title,
        }


@dataclass(frozen=True)
class Default:
    """What counts when nobody has answered in time."""

    seconds: float
    response: Any


def choice(label: str, *, input: dict[str, Any] | None = None) -> dict[str, Any]:
    """One choice as a person sees it; `input=pw.text_input(…)` asks for a text with it."""
    given: object = label
    if not (isinstance(given, str) and given):
        raise WorkflowDefinitionError(f"choice({label!r}): the label is a text that is not empty")
    return {"label": label} if input is None else {"input": input, "label": label}


def text_input(name: str, *, prompt: str, min_length: int = 1, max_length: int = MOST_CHARACTERS) -> dict[str, Any]:
    """A text of so many characters that goes with a choice, and how it is asked for."""
    check_name(name, "input")
    given: object = prompt
    if not (isinstance(given, str) and given):
        raise WorkflowDefinitionError(f"text_input({name!r}): the prompt is a text that is not empty")
    if not 0 <= min_length <= max_length:
        raise WorkflowDefinitionError(f"text_input({name!r}): min_length={min_length}, max_length={max_length}")
    return {"maxLength": max_length, "minLength": min_length, "name": name, "prompt": prompt, "type": "text"}


def human_choices(**choices: dict[str, Any]) -> dict[str, Any]:
    """The closed set of choices, by name: `pw.human_choices(yes=pw.choice("Yes"), no=pw.choice("No"))`."""
    if not choices:
        raise WorkflowDefinitionError("human_choices(): name at least one choice, as yes=pw.choice('Yes')")
    given: Mapping[str, object] = choices
    for name, one in given.items():
        if not (isinstance(one, dict) and "label" in one):
            raise WorkflowDefinitionError(f"human_choices: {name}={one!r}; write {name}=pw.choice('…')")
    return choices


def after(time: timedelta, response: Any) -> Default:
    """What counts when nobody has answered within a time: `pw.after(timedelta(minutes=10), {"choice": "yes"})`."""
    given: object = time
    if not (isinstance(given, timedelta) and given > timedelta(0)):
        raise WorkflowDefinitionError(f"after({time!r}, …): give a timedelta above 0")
    return Default(time.total_seconds(), response)


def human_decision(
    request: Callback,
    *,
    choices: Mapping[str, Any],
    audience: str = "owner",
    on_timeout: Default | None = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    status_detail: str | None = None,
) -> HumanDecision:
    """A node that stops until a person has decided; the output is `{"choice", "input"?}`.

    `request(ctx)` gives the text to decide on, or a dict: `title`, `subject` (JSON for machines), `presentation`
    (`summary` and a list `blocks`, each with a `type`: paragraph, section, bullets, fields or preformatted). `choices`
    comes from `human_choices`, `on_timeout` from `after`. `timeout` bounds `request` alone. An agent can never answer.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    label = "human_decision node"
    kept = human_choices(**dict(choices))
    named: object = audience
    if not (isinstance(named, str) and named):
        raise WorkflowDefinitionError(f"{label}: audience={audience!r}; say who decides, as audience='owner'")
    counts: object = on_timeout
    if not (counts is None or isinstance(counts, Default)):
        raise WorkflowDefinitionError(f"{label}: on_timeout={on_timeout!r}; write pw.after(timedelta(…), 'yes')")
    default = None
    if on_timeout is not None:
        try:
            default = decisions.check_response(kept, on_timeout.response)
        except WorkflowInputError as error:
            raise WorkflowDefinitionError(f"{label}: what counts after a time is no answer: {error}") from None
    return HumanDecision(
        fn=check_callback(label, request, gives="what is to be decided"),
        audience=audience,
        choices=kept,
        seconds=None if on_timeout is None else on_timeout.seconds,
        default=default,
        **check_common(label, timeout, None, status_detail),
    )


def asks_session(graph: Compiled, *, has_agent: bool) -> bool:
    """Whether a run needs a session: a person decides in it, or an agent answers, and none came with the run."""
    return any(
        isinstance(node, HumanDecision) or (node.type == "agent" and not has_agent) for node in graph.nodes.values()
    )


def _presentation(label: str, given: object) -> dict[str, Any]:
    summary = given.get("summary") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(summary, str) or not given.keys() <= {"summary", "blocks"}:
        raise WorkflowDefinitionError(f"{label}: presentation is a dict with a text `summary` and a list `blocks`")
    blocks = given.get("blocks") or []
    for block in blocks if isinstance(blocks, list) else [None]:
        if not isinstance(block, dict) or block.get("type") not in BLOCKS:
            raise WorkflowDefinitionError(f"{label}: each block is a dict whose type is one of {', '.join(BLOCKS)}")
    return {"blocks": blocks, "summary": summary}
