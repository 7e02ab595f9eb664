"""Figures of studies as SVG and PNG; labels have TeX between dollar signs."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import log10, nan
from typing import Any, TypeAlias

import matplotlib.figure
import msgspec
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from regard import drawing
from regard.book.formula_text import label_text
from regard.drawing import COLORS, INK
from regard.studies.figure import (
    Bars,
    Chart,
    Figure,
    Graph,
    HeatMap,
    Line,
    Panel,
    Series,
    Style,
    Values,
)

Places: TypeAlias = Float[np.ndarray, " places"]
_FORMATS: dict[Style, str] = {
    "line": "-",
    "dashes": "--",
    "dotted": ":",
    "dots": "o",
    "squares": "s",
    "crosses": "x",
    "line with dots": "o-",
}
"""Matplotlib's formats."""
_WIDTHS = {1: 6.4, 2: 7.6, 3: 9.6}
"""Width of a figure by panels per row, in inches."""
_PANEL_WIDTHS = {1: 4.4, 2: 3.8, 3: 3.2, 4: 2.3}
"""Width of a panel that is drawn alone, by panels per row, in inches."""
_SCALE_WIDTH = 4.4
"""Width of a color scale that is drawn alone, in inches: that of a phone."""
_LETTERS = 12
"""Number of letters per inch."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SEPARATED = 32
"""Maximum number of rows or columns for which lines separate the cells."""


def to_svg(figure: Figure, name: str) -> str:
    """Return an SVG element that suits light and dark pages; its ids begin with `name`."""
    with _drawn(figure) as made:
        return drawing.to_svg(made, label_text(figure.caption), name=name)


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG on a white background."""
    with _drawn(figure) as made:
        return drawing.to_png(made)


def to_panels(figure: Figure, name: str) -> list[str]:
    """Return an SVG element for each panel, then of what they share: legend entries, or a scale.

    A page puts them side by side, or below each other if it is narrow.
    """
    typeset, width = _typeset(figure), _PANEL_WIDTHS[min(figure.grid[0], 4)]
    height = max(map(_height, figure.panels))
    own_legends = not _share_legend(figure.panels)
    own_scales = not _share_scale(figure.panels)
    panels, legends = [], []
    for number, panel in enumerate(typeset.panels):
        title = label_text(figure.panels[number].title or figure.caption)
        with _panels([panel], (1, 1), width, height) as (made, axes):
            if own_scales:
                _add_color_bars(made, axes, [panel])
            if own_legends:
                _add_own_legends(axes)
            panels.append(drawing.to_svg(made, title, name=f"{name}-{number + 1}"))
            legends.append(axes[0].get_legend_handles_labels())
    if not own_legends:
        entries = zip(*next(legend for legend in legends if legend[1]), strict=True)
        panels += [_entry(*entry, f"{name}-legend-{i}") for i, entry in enumerate(entries, 1)]
    if not own_scales:
        panels.append(_color_scale(typeset.panels, f"{name}-scale"))
    return panels


def _entry(handle: Artist, label: str, name: str) -> str:
    """Return an entry of the legend that panels share as an SVG element."""
    with drawing.panels() as (made, (place,)):
        place.set_axis_off()
        box = made.legend([handle], [label], loc="center", borderpad=0.2).get_window_extent()
        made.set_size_inches(box.width / made.dpi, box.height / made.dpi)
        return drawing.to_svg(made, label, name=name)


def _color_scale(panels: Sequence[Panel], name: str) -> str:
    """Return the color scale that heat maps share as an SVG element."""
    strongest, signed, unit = next(_scale(one) for one in panels if isinstance(one, HeatMap))
    height = 0.6 if unit else 0.4
    with drawing.panels(width=_SCALE_WIDTH, height=height) as (made, (axes,)):
        drawing.color_scale(axes, strongest=strongest, signed=signed, label=unit)
        return drawing.to_svg(made, "color scale", name=name)


@contextmanager
def _drawn(figure: Figure) -> Iterator[matplotlib.figure.Figure]:
    (columns, rows), panels = figure.grid, _typeset(figure).panels
    height = rows * max(map(_height, panels))
    with _panels(panels, figure.grid, _WIDTHS.get(columns, 10.4), height) as (made, axes):
        _add_color_bars(made, axes, panels)
        _add_legends(made, axes, panels)
        yield made


@contextmanager
def _panels(
    panels: Sequence[Panel], grid: tuple[int, int], width: float, height: float
) -> Iterator[tuple[matplotlib.figure.Figure, list[Axes]]]:
    """Yield the figure without legends and color bars, and its axes; sizes in inches."""
    with drawing.panels(*grid, width=width, height=height) as (made, axes):
        for panel, each in zip(panels, axes, strict=False):
            each.set_title(panel.title)
            _draw(panel, each)
        for empty in axes[len(panels) :]:
            empty.set_axis_off()
        yield made, axes


def _typeset(figure: Figure) -> Figure:
    """Return the figure with formulas of its labels as text in italic letters.

    Other dollar signs are escaped: matplotlib would parse them as mathematics.
    """
    return msgspec.convert(_with_label_text(msgspec.to_builtins(figure)), Figure)


def _with_label_text(part: Any, name: str = "") -> Any:
    match part:
        case str():  # names of rows and columns may be texts, which are drawn as they stand
            text = part if name in ("rows", "columns") else label_text(part)
            return text.replace("$", r"\$")
        case dict():
            return {key: _with_label_text(one, key) for key, one in part.items()}
        case list() if part and not isinstance(part[0], float):
            return [_with_label_text(one, name) for one in part]
    return part


def _height(panel: Panel) -> float:
    """Return the height of a panel in inches."""
    if isinstance(panel, HeatMap):
        return min(3.2, 1.1 + 0.3 * len(panel.values))
    return 4.6 if isinstance(panel, Graph) else 3.2


def _draw(panel: Panel, axes: Axes) -> None:
    match panel:
        case Chart():
            _draw_chart(panel, axes)
        case HeatMap():
            _draw_heat_map(panel, axes)
        case Graph():
            _draw_graph(panel, axes)


def _draw_chart(chart: Chart, axes: Axes) -> None:
    axes.set(xlabel=chart.x, ylabel=chart.y, xscale=chart.x_scale, yscale=chart.y_scale)
    palette = count()
    for place, one in enumerate(chart.bars):
        color = _color(next(palette) if one.color is None else one.color)
        _draw_bars(one, axes, color, place, len(chart.bars))
    for each in chart.series:
        _draw_series(each, axes, _color(next(palette) if each.color is None else each.color))
    axes.set(ylim=chart.y_limits)
    for line in chart.lines:
        _draw_line(line, axes)
    if chart.names:
        _name_places(chart.names, axes)
    elif chart.x_ticks:
        axes.set_xticks(chart.x_ticks, [f"{tick:g}" for tick in chart.x_ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
    _label_decades(axes)


def _name_places(names: Sequence[str], axes: Axes) -> None:
    """Write names below the places 0, 1, 2, …; at an angle if they don't fit."""
    wrapped = [
        "\n".join(textwrap.fill(line, 16) for line in name.splitlines() or [""]) for name in names
    ]
    axes.set_xticks(range(len(names)), wrapped)
    letters = sum(2 + max(map(len, name.splitlines()), default=0) for name in wrapped)
    if letters > _letters_across(axes):
        axes.tick_params(axis="x", labelrotation=60)


def _letters_across(axes: Axes) -> float:
    """Return the number of letters as wide as a panel."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None
    assert place is not None
    return _LETTERS * figure.get_figwidth() / place.get_gridspec().ncols


def _color(index: int | None) -> str:
    return INK if index is None else COLORS[index % len(COLORS)]


def _numbers(values: Values) -> Places:
    return np.array([nan if value is None else value for value in values])


def _draw_bars(bars: Bars, axes: Axes, color: str, place: int, among: int) -> None:
    """Draw one of `among` groups of bars side by side around 0, 1, 2, …."""
    width, values = 0.72 / among, _numbers(bars.values)
    x = np.arange(len(values)) + width * (place - (among - 1) / 2)
    axes.bar(x, values, 0.92 * width, color=color, label=bars.label or None)
    if min(values, default=0) < 0:
        axes.axhline(0, color=INK, linewidth=0.8)
    if bars.low:
        _draw_intervals(axes, x, values, bars, INK)


def _draw_series(series: Series, axes: Axes, color: str) -> None:
    x, y = _numbers(series.x), _numbers(series.y)
    label = series.label or None
    if series.style == "steps":
        axes.stairs(y, x, color=color, label=label, linewidth=1.5)
        axes.stairs(y, x, color=color, fill=True, alpha=0.15, linewidth=0)
        return
    axes.plot(x, y, _FORMATS[series.style], color=color, label=label, markersize=4)
    if not series.low:
        return
    if "line" in series.style or series.style in ("dashes", "dotted"):
        low, high = _numbers(series.low), _numbers(series.high)
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    else:
        _draw_intervals(axes, x, y, series, color)


def _draw_intervals(axes: Axes, x: Places, y: Places, ends: Series | Bars, color: str) -> None:
    below, above = y - _numbers(ends.low), _numbers(ends.high) - y
    axes.errorbar(x, y, np.stack([below, above]), fmt="none", ecolor=color, capsize=2)


def _draw_line(line: Line, axes: Axes) -> None:
    style: dict[str, Any] = {"linestyle": ":", "color": INK, "linewidth": 1}
    text: dict[str, Any] = {"color": INK, "fontsize": 9}
    if line.x is not None:
        axes.axvline(line.x, **style)
        along = axes.get_xaxis_transform()
        axes.text(line.x, 0.99, f" {line.label}", transform=along, va="top", **text)
    if line.y is not None:
        axes.axhline(line.y, **style)
        along = axes.get_yaxis_transform()
        axes.text(0.99, line.y, line.label, transform=along, ha="right", va="bottom", **text)


def _label_decades(axes: Axes) -> None:
    """Label powers of ten; more ticks of a logarithmic axis that spans few of them."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), LogLocator):
            continue
        low, high = sorted(axis.get_view_interval())
        if log10(high / low) < 2:
            axis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}")
        else:
            axis.set_major_formatter(_power_of_ten)
        axis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float, _: float) -> str:
    """Return a power of ten with a superscript of the font, as large as other text."""
    return "10" + str(round(log10(value))).translate(_SUPERSCRIPTS)


def _draw_heat_map(heat_map: HeatMap, axes: Axes) -> None:
    values = np.array(heat_map.values)
    drawing.heat_map(axes, values, strongest=heat_map.most)
    rows, columns = values.shape
    if max(rows, columns) <= _SEPARATED:
        axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color=INK, linewidth=0.2)
        axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color=INK, linewidth=0.2)
    axes.set(xlabel=heat_map.x, ylabel=heat_map.y)
    axes.set_xticks(range(len(heat_map.columns)), heat_map.columns)
    axes.set_yticks(range(len(heat_map.rows)), heat_map.rows)
    beside = max(map(len, heat_map.rows), default=0)
    if beside + sum(1 + len(name) for name in heat_map.columns) > _letters_across(axes):
        axes.tick_params(axis="x", labelrotation=90)
    if heat_map.written:
        narrow = beside + 5 * columns > _letters_across(axes)  # a value has four letters
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
        for (row, column), value in np.ndenumerate(values):
            axes.text(column, row, f"{value:.2f}", rotation=90 * narrow, **style)


def _draw_graph(graph: Graph, axes: Axes) -> None:
    axes.set_axis_off()
    places = np.array([(node.x, node.y) for node in graph.nodes])
    low, high = places.min(0) - 0.5, places.max(0) + 0.5
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    circle = {"boxstyle": "circle,pad=0.25", "facecolor": "none", "edgecolor": INK}
    for node in graph.nodes:
        axes.text(node.x, node.y, node.text, ha="center", va="center", bbox=circle, fontsize=9)
    for arrow in graph.arrows:
        color, start, end = _color(arrow.color), places[arrow.start], places[arrow.end]
        style = {"arrowstyle": "->", "color": color, "shrinkA": 11, "shrinkB": 11}
        axes.annotate("", xy=end, xytext=start, arrowprops=style | {"linewidth": 0.9})
        x, y = (start + end) / 2
        axes.text(x + 0.06, y, arrow.label, fontsize=9, va="center", color=color)


def _add_color_bars(
    made: matplotlib.figure.Figure, axes: Sequence[Axes], panels: Sequence[Panel]
) -> None:
    """Add a color bar for each scale: beside its heat map, or beside all if they share one."""
    groups = [
        (_scale(panel), [each])
        for panel, each in zip(panels, axes, strict=False)
        if isinstance(panel, HeatMap)
    ]
    if _share_scale(panels):
        groups = [(groups[0][0], list(axes[: len(panels)]))]
    for (most, signed, unit), beside in groups:
        drawing.color_bar(made, beside, strongest=most, signed=signed, label=unit)


def _share_scale(panels: Sequence[Panel]) -> bool:
    """Whether several panels are heat maps with the same scale."""
    scales = {_scale(panel) if isinstance(panel, HeatMap) else None for panel in panels}
    return len(panels) > 1 and len(scales) == 1 and None not in scales


def _scale(heat_map: HeatMap) -> tuple[float, bool, str]:
    """Return the value of full color, whether there are negative values, and the unit."""
    return heat_map.most, min(map(min, heat_map.values)) < 0, heat_map.unit


def _add_legends(
    made: matplotlib.figure.Figure, axes: Sequence[Axes], panels: Sequence[Panel]
) -> None:
    """Add a legend below all charts if they share one, or if bars take the space; else in each."""
    if not _share_legend(panels):
        _add_own_legends(axes)
        return
    found = (each.get_legend_handles_labels() for each in axes)
    handles, labels = next(legend for legend in found if legend[1])
    made.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))


def _add_own_legends(axes: Sequence[Axes]) -> None:
    for each in axes:
        if each.get_legend_handles_labels()[1]:
            each.legend(fontsize=9)


def _share_legend(panels: Sequence[Panel]) -> bool:
    """Whether one legend stands below all: charts share it, or bars take the space."""
    charts = [panel for panel in panels if isinstance(panel, Chart)]
    crowded = any(len(chart.bars) > 1 for chart in charts)
    return len({_labels(panel) for panel in panels} - {()}) == 1 and (crowded or len(charts) > 1)


def _labels(panel: Panel) -> tuple[str, ...]:
    """Return the entries of a panel's legend."""
    marks = (*panel.series, *panel.bars) if isinstance(panel, Chart) else ()
    return tuple(mark.label for mark in marks if mark.label)
