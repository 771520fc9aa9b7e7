"""What the inspector of a run shows when it is asked: frames cut to what a person reads, times as milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pi_workflows_nb.wire import canonical_json
from pi_workflows_nb.wire.errors import PiWorkflowsError

from . import representations, wording

if TYPE_CHECKING:
    import pandas as pd

    from .run import Run

ROWS: Final = 100
CELL: Final = 400
_COLUMNS: Final = {
    "Updates": ("node_id", "type", "key", "recorded_at", "data"),
    "Progress": ("label", "status", "completed", "total", "unit", "rate", "eta", "eta_earliest", "eta_latest",
                 "eta_confidence"),
    "Effects": ("effect_type", "status", "attempt_count", "created_at", "settled_at", "to do"),
    "Events": ("event_seq", "event_type", "actor_type", "recorded_at"),
}  # fmt: skip


def inspect(run: Run, tab: str, node: str | None) -> dict[str, Any]:
    """One tab, of the whole run or of one node, as a message to the front end. Empty for a tab that is none."""
    said: dict[str, Any] = {"inspect": tab, "node": node}
    if tab == "Output":
        return {**said, "text": _output(run, node)}
    if tab == "Logs":
        logs = run.logs(node=node, limit=ROWS * 10)
        lines = [f"{name} {number}│ {text}" for name, number, text in
                 zip(logs["node_id"], logs["attempt_number"], logs["text"], strict=True)]  # fmt: skip
        return {**said, "text": representations.cut("\n".join(lines)) or "nothing was printed yet"}
    if tab not in _COLUMNS:
        return {}
    frame = _frame(run, tab, node).reset_index()
    names = [name for name in _COLUMNS[tab] if name in frame.columns]
    times = [at for at, name in enumerate(names) if frame[name].dtype.kind == "M"]
    rows = [[_cell(value) for value in row] for row in frame[names].tail(ROWS).iloc[::-1].itertuples(index=False)]
    return {**said, "columns": names, "rows": rows, "times": times}


def _frame(run: Run, tab: str, node: str | None) -> pd.DataFrame:
    if tab == "Updates":
        return run.updates(node=node, payloads=True)
    if tab == "Progress":
        return run.progress(node=node)
    if tab == "Events":
        return run.events(order="-event_seq", limit=ROWS).iloc[::-1]
    frame = run.effects()
    frame["to do"] = [name if status == "ambiguous" else None for name, status in zip(
        frame.index.get_level_values(-1), frame["status"], strict=True)]  # fmt: skip
    return frame


def _output(run: Run, node: str | None) -> str:
    try:
        value = run.output if node is None else run.output_of(node)
    except PiWorkflowsError as error:
        return representations.cut(str(error))
    return representations.cut(value if isinstance(value, str) else _json(value, 2))


def _json(value: Any, indent: int | None = None) -> str:
    import json

    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except RecursionError:
        return canonical_json.encode(value).decode()


def _cell(value: Any) -> Any:
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.value // 1_000_000
    if isinstance(value, float):
        return f"{value:g}"
    return wording.one_line(_json(value) if isinstance(value, list | dict) else str(value), CELL)
