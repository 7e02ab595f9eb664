"""The charts that most studies draw."""

from collections.abc import Mapping
from typing import Any

from regard.metrics import Interval
from regard.studies.figure import Bars, Chart, Figure, Line, Panel, Series, bars, interval_bars

Groups = Mapping[str, Mapping[str, float | Interval]]
"""Heights of bars, by label in the legend and by name below the bars; the names of all groups are
the same."""


def chart(*drawn: Series | Bars | Line, **axes: Any) -> Chart:
    """Return a chart; `axes` are the other fields of `Chart`."""
    return Chart(
        series=[one for one in drawn if isinstance(one, Series)],
        bars=[one for one in drawn if isinstance(one, Bars)],
        lines=[one for one in drawn if isinstance(one, Line)],
        **axes,
    )


def figure(*panels: Panel, caption: str, columns: int | None = None) -> Figure:
    """Return a figure of panels; by default all in one row."""
    return Figure(panels=list(panels), caption=caption, columns=columns)


def one_chart(*drawn: Series | Bars | Line, caption: str, **axes: Any) -> Figure:
    """Return a figure of one chart."""
    return figure(chart(*drawn, **axes), caption=caption)


def bar_chart(groups: Groups, *drawn: Series | Line, caption: str, **axes: Any) -> Figure:
    """Return a figure of bars side by side."""
    return figure(bar_panel(groups, *drawn, **axes), caption=caption)


def bar_panel(groups: Groups, *drawn: Series | Line, **axes: Any) -> Chart:
    """Return bars side by side; scores with an interval show it."""
    names = list(next(iter(groups.values())))
    several = [_bars(group, label) for label, group in groups.items()]
    return chart(*several, *drawn, names=names, **axes)


def _bars(group: Mapping[str, float | Interval], label: str) -> Bars:
    intervals = [score for score in group.values() if isinstance(score, Interval)]
    numbers = [score for score in group.values() if not isinstance(score, Interval)]
    return interval_bars(intervals, label) if intervals else bars(numbers, label)
