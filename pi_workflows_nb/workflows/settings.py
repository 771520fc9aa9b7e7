"""Settings of a run that change while it goes on: what they begin as, who may change what, and patches.

A change is an RFC 6902 patch. Every place it touches must be open to whoever asks: the rule with the longest path that
leads to the place decides, and where an operation takes or replaces a whole, every rule for something inside of it is
asked as well. What no rule opens is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import SettingsError, WorkflowDefinitionError, WorkflowInputError
from pi_workflows_nb.workflows.values import to_json

MAX_OPERATIONS: Final = 256
MAX_PATCH_BYTES: Final = 64 << 10
MAX_POINTER_BYTES: Final = 1 << 10
MAX_VALUE_BYTES: Final = 256 << 10

Actor: TypeAlias = Literal["session", "human", "controller", "policy"]
Right: TypeAlias = Literal["read", "add", "remove", "replace"]
Allow: TypeAlias = Callable[[int, Right, str], None]
ACTORS: Final = ("session", "human", "controller", "policy")
RIGHTS: Final[tuple[Right, ...]] = ("read", "add", "remove", "replace")
_FIELDS: Final = {
    "add": {"op", "path", "value"},
    "copy": {"from", "op", "path"},
    "move": {"from", "op", "path"},
    "remove": {"op", "path"},
    "replace": {"op", "path", "value"},
    "test": {"op", "path", "value"},
}


@dataclass(frozen=True)
class PathRule:
    """Who may do what at a path and below it: the actors for each right."""

    path: str
    read: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """The rule as JSON, as it stands in a definition's snapshot."""
        return {"path": self.path, **{right: list(getattr(self, right)) for right in RIGHTS if getattr(self, right)}}


@dataclass(frozen=True, eq=False)
class WorkflowSettings:
    """What a workflow declares of its settings; see `workflow_settings`."""

    initial: Any
    parse: Any = None
    paths: tuple[PathRule, ...] = ()
    validate_change: Callable[..., Any] | None = None


def allow_settings_path(
    path: str,
    *,
    read: Iterable[Actor] = (),
    add: Iterable[Actor] = (),
    remove: Iterable[Actor] = (),
    replace: Iterable[Actor] = (),
) -> PathRule:
    """Open a path of the settings, and all below it, to actors: session, human, controller, policy.

    `path` is a JSON Pointer, the empty one for all.
    Raises WorkflowDefinitionError for a path or actors of another form.
    """
    try:
        check_pointer(path)
    except SettingsError as error:
        raise WorkflowDefinitionError(f"allow_settings_path({path!r}): {error}") from None
    given = {"read": read, "add": add, "remove": remove, "replace": replace}
    kept: dict[str, tuple[str, ...]] = {}
    for right, actors in given.items():
        names = (actors,) if isinstance(actors, str) else tuple(actors)
        wrong = [name for name in names if name not in ACTORS]
        if wrong:
            raise WorkflowDefinitionError(
                f"allow_settings_path({path!r}): {right}={wrong!r}; actors are {', '.join(ACTORS)}"
            )
        kept[right] = names
    return PathRule(path, **kept)


def workflow_settings(
    *,
    initial: Any,
    parse: Any = None,
    paths: Iterable[PathRule] = (),
    validate_change: Callable[[Any, Any], Any] | None = None,
) -> WorkflowSettings:
    """Declare the settings of a workflow.

    `initial` is JSON, or a function of the run's input that gives it; `parse` a callable of a value, or a type, that
    checks and normalizes it, now and after each change; `paths` what may be changed by whom; `validate_change` a
    function of (before, after) that raises to refuse a change.
    Raises WorkflowDefinitionError for an argument that cannot be right.
    """
    rules = tuple(paths)
    for rule in rules:
        if not isinstance(rule, PathRule):
            raise WorkflowDefinitionError(f"workflow_settings: {rule!r} in paths; write pw.allow_settings_path('/x')")
    if len({rule.path for rule in rules}) < len(rules):
        raise WorkflowDefinitionError("workflow_settings: the same path stands twice in paths; keep one rule for each")
    for field, value in (("parse", parse), ("validate_change", validate_change)):
        if value is not None and not callable(value):
            raise WorkflowDefinitionError(f"workflow_settings: {field}={value!r} is not callable")
    return WorkflowSettings(initial, parse, rules, validate_change)


def initial_settings(settings: WorkflowSettings, given: Any, label: str) -> bytes:
    """The canonical JSON that settings begin as, for a run or an entry with this input.

    `given` is the input, or what an include gives in place of `initial`, as a callable of nothing. Raises
    WorkflowInputError when `parse` refuses it, SettingsError when it is too large.
    """
    value = settings.initial(given) if callable(settings.initial) else settings.initial
    return parsed(settings, value, label)


def parsed(settings: WorkflowSettings, value: Any, label: str) -> bytes:
    """The canonical JSON that `parse` makes of a value; errors as `initial_settings`."""
    from pi_workflows_nb.workflows.inputs import accept

    return check_size(canonical_json.encode(to_json(accept(f"{label}: the settings", settings.parse, value))))


def changed(settings: WorkflowSettings, before: Any, after: Any, label: str) -> bytes:
    """The canonical JSON of settings after a change, once the workflow's own code has looked at it.

    Raises WorkflowInputError when `parse` or `validate_change` refuses it, SettingsError when it is too large.
    """
    value = parsed(settings, after, label)
    if settings.validate_change is not None:
        try:
            settings.validate_change(before, canonical_json.decode(value))
        except Exception as error:
            raise WorkflowInputError(f"{label} is refused: {str(error) or type(error).__name__}") from error
    return value


def check_size(value: bytes) -> bytes:
    """Give back settings that are small enough; SettingsError otherwise."""
    if len(value) > MAX_VALUE_BYTES:
        raise SettingsError(f"the settings would take {len(value):,} bytes; they may take {MAX_VALUE_BYTES:,}")
    return value


def check_pointer(pointer: object, what: str = "path") -> JsonPointer:
    """Give a pointer in its form of RFC 6901; SettingsError for what is none or is longer than 1 KiB."""
    if not isinstance(pointer, str):
        raise SettingsError(f"{what} {pointer!r} is not a text")
    if len(pointer.encode("utf-8", "surrogatepass")) > MAX_POINTER_BYTES:
        raise SettingsError(f"{what} {pointer[:40]!r}… is longer than {MAX_POINTER_BYTES:,} bytes")
    try:
        return JsonPointer(pointer)
    except JsonPointerException as error:
        raise SettingsError(f"{what} {pointer!r} is no JSON Pointer ({error}); write '/field/0'") from None


def check_patch(patch: object) -> list[dict[str, Any]]:
    """Give back a patch that keeps to RFC 6902 and to the limits; SettingsError names the operation at fault."""
    if not isinstance(patch, list):
        raise SettingsError("a patch is a list of operations, as [{'op': 'replace', 'path': '/x', 'value': 1}]")
    if len(patch) > MAX_OPERATIONS:
        raise SettingsError(f"the patch has {len(patch):,} operations; it may have {MAX_OPERATIONS}")
    size = len(canonical_json.encode(to_json(patch)))
    if size > MAX_PATCH_BYTES:
        raise SettingsError(f"the patch takes {size:,} bytes; it may take {MAX_PATCH_BYTES:,}")
    for number, operation in enumerate(patch):
        _check_operation(number, operation)
    return patch


def _check_operation(number: int, operation: object) -> None:
    if not isinstance(operation, dict):
        raise SettingsError(f"operation {number} is {operation!r}, not an object")
    known = _FIELDS.get(operation.get("op", ""))
    if known is None:
        raise SettingsError(f"operation {number}: op is {operation.get('op')!r}; it is one of {', '.join(_FIELDS)}")
    missing = sorted(known - operation.keys())
    if missing:
        raise SettingsError(f"operation {number} ({operation['op']}) lacks {', '.join(missing)}")
    for field in ("path", "from") if "from" in known else ("path",):
        check_pointer(operation[field], f"operation {number} ({operation['op']}): {field}")


def patched(value: Any, patch: list[dict[str, Any]], allow: Allow | None = None) -> Any:
    """The value after a checked patch, all of it or none; SettingsError names the operation that cannot be done.

    `allow` is called before each with its number, and each right and path it needs, and raises to refuse.
    """
    for number, operation in enumerate(patch):
        if allow is not None:
            for right, path in _needed(value, operation):
                allow(number, right, path)
        where = f"operation {number} ({operation['op']} {operation['path']!r})"
        try:
            value = JsonPatch([operation]).apply(value)
        except (JsonPatchException, JsonPointerException) as error:
            raise SettingsError(f"{where} cannot be done: {error}") from None
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise SettingsError(f"{where} does not fit the settings: {type(error).__name__}: {error}") from None
    return value


def _needed(value: Any, operation: Mapping[str, Any]) -> list[tuple[Right, str]]:
    """The rights an operation needs, each with the place."""
    op, path = operation["op"], operation["path"]
    if op == "test":
        return [("read", path)]
    if op in ("remove", "replace"):
        return [(op, path)]
    target: list[tuple[Right, str]] = [("replace" if _replaces(value, path) else "add", path)]
    if op == "copy":
        return [("read", operation["from"]), *target]
    return [("remove", operation["from"]), *target] if op == "move" else target


def _replaces(value: Any, path: str) -> bool:
    """Whether something that is added there takes the place of something, and does not move it up."""
    pointer = JsonPointer(path)
    if not pointer.parts:
        return True
    try:
        parent, last = pointer.to_last(value)
    except (JsonPointerException, TypeError):
        return False
    return isinstance(parent, dict) and last in parent


def rights_of(rules: Iterable[Mapping[str, Any]], actor: str) -> Allow:
    """What `patched` asks: SettingsError where the rules (as `PathRule.told`) do not open a place to an actor."""
    listed = [(JsonPointer(rule["path"]).parts, rule) for rule in rules]

    def allow(number: int, right: Right, path: str) -> None:
        parts = JsonPointer(path).parts
        leading = [(len(own), rule) for own, rule in listed if parts[: len(own)] == own]
        deciding = [max(leading, key=lambda found: found[0])[1]] if leading else []
        inside = [rule for own, rule in listed if len(own) > len(parts) and own[: len(parts)] == parts]
        if not deciding:
            raise SettingsError(f"operation {number}: no rule of the workflow opens {path!r} to anybody")
        for rule in [*deciding, *inside]:
            if actor not in rule.get(right, ()):
                at = "" if rule["path"] == path else f", by the rule for {rule['path']!r}"
                raise SettingsError(f"operation {number}: {actor} may not {right} {path!r}{at}")

    return allow
