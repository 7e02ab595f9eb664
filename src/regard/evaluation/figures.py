"""Figures as SVG that suit a light and a dark page: lines and text take the page's color."""

from collections.abc import Collection, Mapping, Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from regard.drawing import COLORS, INK, panels, to_svg
from regard.metrics import Interval

WIDTH = 4.4
"""Of a chart, in inches: that of a phone, so that text stays readable there."""

SHORT = 20
"""Letters of a name in a legend of two columns."""

Curve = tuple[Sequence[float], Sequence[float]]


def line_chart(
    curves: Mapping[str, Curve],
    *,
    x: str,
    y: str,
    title: str,
    log_y: bool = False,
    points: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Named curves, and named points, in one chart."""
    points = points or {}
    names = [*curves, *points]
    with panels(height=2.8 + _legend_height(names), width=WIDTH) as (figure, (axes,)):
        for name, (xs, ys) in curves.items():
            axes.plot(xs, ys, label=name, linewidth=1.6)
        for name, (at, height) in points.items():
            axes.plot([at], [height], "o", color=INK, label=name)
        if log_y:
            axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if len(names) > 1:
            _draw_legend(figure, names)
        return to_svg(figure, title)


def interval_chart(values: Mapping[str, Interval], *, x: str, title: str) -> str:
    """A bar with its interval for each name, the first on top."""
    with panels(height=0.5 + 0.42 * len(values), width=WIDTH) as (figure, (axes,)):
        for row, interval in enumerate(values.values()):
            axes.barh(row, interval.value, color=COLORS[row % len(COLORS)], height=0.6)
            axes.plot([interval.low, interval.high], [row, row], color=INK, linewidth=1.2)
        axes.set_yticks(range(len(values)), list(values))
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        figure.supxlabel(x, fontsize="medium")  # which may be wider than the axes
        return to_svg(figure, title)


def histogram(groups: Mapping[str, Sequence[float]], *, x: str, title: str) -> str:
    """How a number is distributed in each group."""
    with panels(height=3.0, width=WIDTH) as (figure, (axes,)):
        everything = np.concatenate([np.asarray(values) for values in groups.values()])
        bins = np.linspace(everything.min(), everything.max() + 1e-9, 40).tolist()
        for name, values in groups.items():
            axes.hist(values, bins=bins, alpha=0.6, label=name)
        axes.set_xlabel(x)
        axes.set_ylabel("people")
        _draw_legend(figure, groups)
        return to_svg(figure, title)


def _columns(names: Collection[str]) -> int:
    """Number of columns in which a legend fits the width."""
    return 2 if max(map(len, names)) <= SHORT else 1


def _legend_height(names: Collection[str]) -> float:
    return 0.2 * ceil(len(names) / _columns(names)) + 0.2


def _draw_legend(figure: Figure, names: Collection[str]) -> None:
    figure.legend(loc="outside lower center", ncols=_columns(names))
