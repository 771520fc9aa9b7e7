"""Values that come from outside: a run's input, an agent's answer, a person's answer."""

from __future__ import annotations

import dataclasses
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pi_workflows_nb.wire.errors import NotJsonError, WorkflowDefinitionError, WorkflowInputError
from pi_workflows_nb.wire.identities import cap_units
from pi_workflows_nb.workflows.nodes import Decision, Node
from pi_workflows_nb.workflows.values import to_json

if TYPE_CHECKING:
    from pi_workflows_nb.workflows.definition import Workflow

TITLE_SECONDS: Final = 30.0


def normalize_input(workflow: Workflow, value: Any) -> Any:
    """Give the input a run starts with, a JSON value: checked and normalized by the workflow's `input`, if it has one.

    Takes JSON, or an object of the type that the workflow names. Raises WorkflowInputError when it is refused or is
    not JSON.
    """
    return accept(f"the input of workflow {workflow.name!r}", workflow.input, value)


def accept_value(node: Node, value: Any) -> Any:
    """Give the output that a submitted value becomes, a JSON value.

    Takes an agent, decision or checkpoint node and the answer. A decision's output is its choice under its field and
    nothing else; the bare name of a choice will do as an answer. Raises WorkflowInputError, naming the node, when the
    node's `validate` or its choices refuse the value, or it is not JSON.
    """
    label = f"node {node.name!r}: the value"
    if not isinstance(node, Decision):
        return accept(label, node.validate, value)
    picked = _picked(node, _to_json(label, value))
    return picked if node.validate is None else _picked(node, accept(label, node.validate, picked))


def make_title(workflow: Workflow, input: Any) -> str | None:
    """Give the title of a run with this (normalized) input; None when the workflow has none.

    A function has 30 s. Raises WorkflowDefinitionError when it takes longer, fails, or gives something else than text.
    """
    title = workflow.title
    if callable(title):
        title = _call_bounded(workflow, title, input)
    if title is None:
        return None
    if not isinstance(title, str):
        raise WorkflowDefinitionError(
            f"workflow {workflow.name!r}: title gave {_kind(title)}; return a text, or None for no title"
        )
    return cap_units(title)


def accept(label: str, shape: Any, value: Any) -> Any:
    """Give the JSON value that `shape`, a callable or a type, makes of a value; None takes any JSON.

    `label` says in errors what the value is. Raises WorkflowInputError when it is refused, or not JSON.
    """
    value = _to_json(label, _plain(value))
    if shape is None:
        return value
    try:
        found = _conform(shape, value)
    except NameError as error:
        if not isinstance(shape, type):
            raise _refused(label, error) from error
        raise WorkflowInputError(
            f"{label} cannot be checked: a field of {shape.__name__} has a type that is not known there ({error}); "
            "define it in the same cell, and leave `from __future__ import annotations` out of that cell"
        ) from error
    except Exception as error:
        raise _refused(label, error) from error
    return value if found is None else _to_json(label, _plain(found))


def _conform(shape: Any, value: Any) -> Any:
    if hasattr(shape, "model_validate"):
        return shape.model_validate(value)
    if isinstance(shape, type) and shape.__module__ != "builtins" and not _has_fields(shape):
        return shape(value)
    if isinstance(shape, type) or hasattr(shape, "__origin__"):
        return msgspec.convert(value, shape)
    return shape(value)


def _has_fields(shape: type) -> bool:
    return (
        dataclasses.is_dataclass(shape)
        or hasattr(shape, "__total__")
        or hasattr(shape, "__attrs_attrs__")
        or hasattr(shape, "_fields")
        or issubclass(shape, msgspec.Struct)
    )


def _plain(value: Any) -> Any:
    if type(value) in (dict, list, str, int, float, bool, type(None)) or isinstance(value, type):
        return value
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # asdict, because msgspec leaves out fields that still have their class's default.
        return msgspec.to_builtins(dataclasses.asdict(value))
    if hasattr(type(value), "__attrs_attrs__") or isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return value


def _picked(node: Decision, value: Any) -> dict[str, Any]:
    pick = value.get(node.field) if isinstance(value, dict) else value
    if isinstance(pick, str) and pick in node.choices:
        return {node.field: pick}
    choices = ", ".join(repr(choice) for choice in node.choices)
    raise WorkflowInputError(
        f"node {node.name!r}: the value {_short(value)} picks none of its choices; it is one of {choices}, plain or as "
        f"{{{node.field!r}: …}}"
    )


def _to_json(label: str, value: Any) -> Any:
    try:
        return to_json(value)
    except NotJsonError as error:
        advice = str(error).replace("ctx.save(value, name=…)", "server.save(value)")
        raise WorkflowInputError(f"{label} is not JSON, at {advice}") from None


def _refused(label: str, error: Exception) -> WorkflowInputError:
    said = str(error)
    if not isinstance(error, ValueError | TypeError) or not said:
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return WorkflowInputError(f"{label} is refused: {said}")


def _call_bounded(workflow: Workflow, title: Any, input: Any) -> Any:
    answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

    def call() -> None:
        try:
            made = title(input, workflow.name)
            if hasattr(made, "__await__"):
                import asyncio

                made = asyncio.run(_awaited(made))
            answers.put((made, None))
        except Exception as error:
            answers.put((None, error))

    threading.Thread(target=call, name="title", daemon=True).start()
    try:
        made, error = answers.get(timeout=TITLE_SECONDS)
    except Empty:
        raise WorkflowDefinitionError(
            f"workflow {workflow.name!r}: title took longer than {TITLE_SECONDS:g} s; make it from the input alone"
        ) from None
    if error is not None:
        raise WorkflowDefinitionError(
            f"workflow {workflow.name!r}: title, called as title(input, name), failed with "
            f"{type(error).__name__}: {error}"
        ) from error
    return made


async def _awaited(made: Any) -> Any:
    return await made


def _kind(value: Any) -> str:
    return f"{_short(value)} ({type(value).__name__})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"
