"""`frame.pw`: charts of frames, drawn by altair.

Charts are made of what the frame holds at that moment, at most 5,000 rows of it, and load nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pi_workflows_nb.wire.errors import QueryError

from . import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ROWS: Final = 5_000
TEXT: Final = 200
_BEGINS: Final = ("started_at", "created_at", "recorded_at", "submitted_at", "accepted_at")
_ENDS: Final = ("finished_at", "ended_at", "settled_at", "resolved_at")
_COLOURS: Final = ("outcome", "status", "state", "event_type", "actor_type")
_NAMES: Final = ("node_id", "title", "workflow", "effect_type", "event_type", "resource_manager", "run_id")


@pd.api.extensions.register_dataframe_accessor("pw")
class Charts:
    """Charts of a frame of this package: `frame.pw.timeline()`, `.gantt()`, `.durations()`.

    `QueryError` for a frame that has no times, or no durations, to draw.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def timeline(self) -> Any:
        """What happened when: a mark for each row, by what it is about. Gives an `altair.Chart`."""
        data, begin = self._data(), self._one(_BEGINS, "times")
        return self._chart(data, _altair().Chart(data).mark_tick(thickness=2), begin)

    def gantt(self) -> Any:
        """What took how long when: a bar for each row; what has not ended lasts until now. Gives an `altair.Chart`."""
        begin, end = self._one(_BEGINS, "times"), self._one(_ENDS, "ends")
        data = self._data().dropna(subset=[begin])
        data[end] = data[end].fillna(pd.Timestamp.now("UTC").as_unit("ms"))
        return self._chart(data, _altair().Chart(data).mark_bar(), begin, x2=end)

    def durations(self) -> Any:
        """How long things took: a box for each kind of row. Gives an `altair.Chart`."""
        if "duration" not in self._frame.columns:
            raise QueryError("durations(): this frame has no column duration; steps, attempts, runs and runners have")
        data = self._data().dropna(subset=["duration"])
        data["seconds"] = data["duration"].dt.total_seconds()
        altair = _altair()
        name = self._one(_NAMES, "names")
        return (
            altair.Chart(data.drop(columns=["duration"]))
            .mark_boxplot(extent="min-max")
            .encode(x=altair.X("seconds:Q", title="seconds"), y=altair.Y(f"{name}:N", title=name.replace("_", " ")))
        )

    def _one(self, names: Sequence[str], what: str) -> str:
        held = {*self._frame.columns, *self._frame.index.names}
        found = next((name for name in names if name in held), None)
        if found is None:
            raise QueryError(f"this frame has no {what} to draw; there is none of {', '.join(names)}")
        return found

    def _data(self) -> pd.DataFrame:
        """The columns that charts show, cut to what a chart can bear; texts are flattened, they are data."""
        wanted = {*_BEGINS, *_ENDS, *_COLOURS, *_NAMES, "duration"}
        data = self._frame.reset_index().head(MAX_ROWS)
        data = data[[name for name in data.columns if name in wanted]].copy()
        for name in data.columns:
            if isinstance(data[name].dtype, pd.StringDtype | pd.CategoricalDtype):
                data[name] = data[name].astype(object).map(_shown)
        return data

    def _chart(self, data: pd.DataFrame, mark: Any, begin: str, **more: str) -> Any:
        altair = _altair()
        name = self._one(_NAMES, "names")
        colour = next((each for each in _COLOURS if each in data.columns), None)
        shown = {
            "x": altair.X(f"{begin}:T", title="time"),
            "y": altair.Y(f"{name}:N", title=name.replace("_", " "), sort=None),
            "tooltip": [
                altair.Tooltip(f"{each}:{'T' if each in {*_BEGINS, *_ENDS} else 'N'}")
                for each in data.columns
                if each != "duration"
            ],
        }
        if colour is not None:
            words = list(dict.fromkeys(data[colour].dropna()))
            known = {word: wording.COLOURS[word] for word in words if word in wording.COLOURS}
            scale = altair.Scale(domain=words, range=[known.get(word, wording.NEUTRAL) for word in words])
            shown["color"] = altair.Color(f"{colour}:N", scale=scale if known else altair.Undefined)
        drawn = data.drop(columns=["duration"], errors="ignore")
        return mark.properties(data=drawn).encode(**shown, **more)


def _shown(value: Any) -> str | None:
    return wording.one_line(str(value), TEXT) if isinstance(value, str) else None


def _altair() -> Any:
    try:
        import altair as alt
    except ImportError as error:
        raise QueryError("charts are drawn by altair: pip install 'pi-workflows-nb[lab]'") from error
    return alt
