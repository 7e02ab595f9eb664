"""Figures of studies as data: charts, heat maps and graphs, drawn by `regard.studies.render`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsFloat, TypeAlias

import msgspec
import numpy as np

from regard.metrics import Interval

Numbers: TypeAlias = Iterable[SupportsFloat]
"""Numbers, an array or a tensor."""
Values: TypeAlias = list[float | None]
"""Numbers; None for NaN and infinity."""
Groups = Mapping[str, Mapping[str, float | Interval]]
"""Heights of bars, by label in the legend and by name below the bars; all groups have the same
names."""
Style = Literal["line", "dashes", "dotted", "dots", "squares", "crosses", "line with dots", "steps"]
Named: TypeAlias = Mapping[str, Any]
"""Values by name."""
Limits: TypeAlias = tuple[float | None, float | None]
"""Ends of an axis; None if determined by the data."""
_DIGITS = 5
"""Significant digits of stored values."""


class _Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields shared by series and bars."""

    label: str = ""
    color: int | None = None
    """Index of a palette; by default the next color of the chart."""
    low: Values = msgspec.field(default_factory=list)
    """Lower ends of a band around a line, or of intervals at dots and bars; if any."""
    high: Values = msgspec.field(default_factory=list)


class Series(_Marks, frozen=True, kw_only=True, omit_defaults=True):
    """Points of a chart. Made by `series` or `histogram`."""

    x: Values
    """x coordinates; with style "steps" the edges, one more than the values in `y`."""
    y: Values
    style: Style = "line"


class Bars(_Marks, frozen=True, kw_only=True, omit_defaults=True):
    """Bars at 0, 1, 2, …; several in one chart stand side by side. Made by `bars`."""

    values: Values


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A dotted reference line: vertical at `x`, or horizontal at `y`."""

    x: float | None = None
    y: float | None = None
    label: str = ""
    """Text beside the line."""


class Chart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Series, bars and reference lines on common axes."""

    series: list[Series] = msgspec.field(default_factory=list)
    bars: list[Bars] = msgspec.field(default_factory=list)
    lines: list[Line] = msgspec.field(default_factory=list)
    title: str = ""
    x: str = ""
    """Label of the x axis."""
    y: str = ""
    names: list[str] = msgspec.field(default_factory=list)
    """Names below the bars, or at x = 0, 1, 2, …"""
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    y_limits: Limits = (None, None)
    x_ticks: list[float] = msgspec.field(default_factory=list)


class HeatMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A matrix as colored cells, with a color bar. Made by `heat_map`."""

    values: list[list[float]]
    title: str = ""
    x: str = ""
    """Label of the columns."""
    y: str = ""
    rows: list[str] = msgspec.field(default_factory=list)
    columns: list[str] = msgspec.field(default_factory=list)
    most: float = 1.0
    """Value shown in full color; −`most` has the full color of negative values."""
    unit: str = ""
    """Label of the color bar."""
    written: bool = False
    """Whether the values are written in the cells."""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A circle with a text."""

    x: float
    y: float
    text: str


class Arrow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An arrow from one node to another, by their indices."""

    start: int
    end: int
    label: str = ""
    color: int | None = None
    """Index of a palette; by default the color of text."""


class Graph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Nodes and arrows between them."""

    nodes: list[Node]
    arrows: list[Arrow]
    title: str = ""


Panel: TypeAlias = Chart | HeatMap | Graph


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Panels, row by row, and a caption."""

    panels: Sequence[Panel]
    caption: str
    """Description of the figure, with the meaning of lines, dots and dashes; also the text
    alternative."""
    columns: int | None = None
    """Panels per row; by default all."""

    @property
    def grid(self) -> tuple[int, int]:
        """Number of columns and rows of panels."""
        columns = self.columns or len(self.panels)
        return columns, math.ceil(len(self.panels) / columns)


class Drawing(NamedTuple):
    """A figure without its caption, which is a paragraph of the study's docstring."""

    panels: Sequence[Panel]
    columns: int | None
    values: Named
    """Values named in the caption, in addition to the study's parameters."""

    def with_caption(self, caption: str, parameters: Named) -> Figure:
        """Return the figure; names in braces are replaced by their values."""
        text = caption.format(**{**parameters, **self.values})
        return Figure(panels=list(self.panels), caption=text, columns=self.columns)


def series(
    x: Numbers,
    y: Numbers,
    label: str = "",
    style: Style = "line",
    *,
    color: int | None = None,
    low: Numbers = (),
    high: Numbers = (),
) -> Series:
    """Return a series of numbers, arrays or tensors."""
    ends = {"low": _values(low), "high": _values(high)}
    return Series(x=_values(x), y=_values(y), label=label, style=style, color=color, **ends)


def log_chart(places: Sequence[float], curves: Mapping[str, Numbers], **labels: Any) -> Chart:
    """Return a chart of named curves at some values of x, on logarithmic axes.

    A line with dots for each name, and a tick at each value; `labels` are fields of `Chart`.
    """
    lines = [series(places, y, name, "line with dots") for name, y in curves.items()]
    return Chart(series=lines, x_ticks=list(places), x_scale="log", **{"y_scale": "log"} | labels)


def histogram(
    values: Numbers, edges: Sequence[float], label: str = "", *, color: int | None = None
) -> Series:
    """Return the counts of values between edges, as steps."""
    counts, _ = np.histogram([float(value) for value in values], bins=list(edges))
    return series(edges, counts.tolist(), label, "steps", color=color)


def bars(
    values: Iterable[SupportsFloat | Interval], label: str = "", *, color: int | None = None
) -> Bars:
    """Return bars of numbers, or of scores with their intervals."""
    scores = list(values)
    intervals = [score for score in scores if isinstance(score, Interval)]
    return Bars(
        values=_values(score.value if isinstance(score, Interval) else score for score in scores),
        label=label,
        color=color,
        low=_values(score.low for score in intervals),
        high=_values(score.high for score in intervals),
    )


def heat_map(values: Iterable[Numbers], **labels: Any) -> HeatMap:
    """Return a heat map of rows, an array or a tensor; `labels` are fields of `HeatMap`."""
    return HeatMap(values=[[_rounded(value) for value in row] for row in values], **labels)


# Usual charts


def chart(*drawn: Series | Bars | Line, **axes: Any) -> Chart:
    """Return a chart; `axes` are the other fields of `Chart`."""
    return Chart(
        series=[one for one in drawn if isinstance(one, Series)],
        bars=[one for one in drawn if isinstance(one, Bars)],
        lines=[one for one in drawn if isinstance(one, Line)],
        **axes,
    )


def figure(*panels: Panel, columns: int | None = None, **values: Any) -> Drawing:
    """Return panels, by default in one row; the caption may name `values`."""
    return Drawing(panels, columns, values)


def bar_chart(groups: Groups, *drawn: Series | Line, **axes: Any) -> Chart:
    """Return a chart of bars side by side; scores with an interval show it."""
    names = list(next(iter(groups.values())))
    several = [bars(group.values(), label) for label, group in groups.items()]
    return chart(*several, *drawn, names=names, **axes)


def formula_chart(
    places: Sequence[float],
    formulas: Mapping[str, Callable[[float], SupportsFloat]],
    measured: Mapping[str, Mapping[Any, SupportsFloat]],
    *drawn: Series | Line,
    **axes: Any,
) -> Chart:
    """Return a chart of formulas as lines, with dots of the same color for measured values.

    Formulas are evaluated at some places of the x axis. Names are shown in the legend; dots have
    those of their lines.
    """
    curves = []
    for color, (name, formula) in enumerate(formulas.items()):
        curves.append(series(places, map(formula, places), name, color=color))
        if dots := measured.get(name):
            curves.append(series(dots.keys(), dots.values(), style="dots", color=color))
    return chart(*curves, *drawn, **axes)


def _values(values: Numbers) -> Values:
    numbers = [float(value) for value in values]
    return [_rounded(number) if math.isfinite(number) else None for number in numbers]


def _rounded(value: SupportsFloat) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
