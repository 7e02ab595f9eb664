"""The figure of a comparison: test scores with intervals, and tuning curves."""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.comparison.grid import short_name, sort_key
from regard.comparison.statistics import SEEDS
from regard.drawing import COLORS, panels

if TYPE_CHECKING:
    from regard.comparison.table import Comparison, Record, Row


def draw(comparison: "Comparison") -> Figure:
    """Return a Matplotlib figure, a panel for the scores and one for each tuned axis."""
    rows, tuned = comparison.rows, list(comparison.sweep.tune)
    height, width = max(2.6, 0.6 + 0.36 * len(rows)), 4.2 * (1 + len(tuned))
    with panels(1 + len(tuned), height=height, width=width) as (figure, (scores, *curves)):
        _draw_scores(scores, rows, comparison.table())
        scores.set_xlabel(f"test {comparison.score}")
        for axes, path in zip(curves, tuned, strict=True):
            _draw_curves(axes, rows, path)
            axes.set_ylabel(f"validation {comparison.score}")
        return figure


def _color(place: int) -> str:
    return COLORS[place % len(COLORS)]


def _dash(place: int) -> str:
    """Line style, which distinguishes rows of the same color."""
    return ("-", "--", ":")[place // len(COLORS) % 3]


def _draw_scores(axes: Axes, rows: "list[Row]", records: "list[Record]") -> None:
    """Draw a point with its interval for each row, the first on top."""
    for place, (row, record) in enumerate(zip(rows, records, strict=True)):
        if record["test"] is None:
            continue
        if record["test low"] is not None and record["seeds"] >= SEEDS:
            ends = [record["test low"], record["test high"]]
            axes.plot(ends, [place, place], color=_color(place), linestyle=_dash(place))
        filled = "none" if row.edges else _color(place)  # hollow: the optimum may be off the grid
        axes.plot(record["test"], place, "o", color=_color(place), markerfacecolor=filled)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _draw_curves(axes: Axes, rows: "list[Row]", path: str) -> None:
    """Draw mean validation scores over a tuned axis; points in the window are filled."""
    values = sorted({value for row in rows for value in row.curve(path)}, key=sort_key)
    places = {value: place for place, value in enumerate(values)}
    for number, row in enumerate(rows):
        curve = [(value, mean) for value, mean in row.curve(path).items() if mean is not None]
        xs, ys = [places[value] for value, _ in curve], [mean for _, mean in curve]
        axes.plot(xs, ys, f"o{_dash(number)}", color=_color(number), markerfacecolor="none")
        window = row.window(path)
        inside = [(places[value], mean) for value, mean in curve if value in window]
        axes.plot([x for x, _ in inside], [y for _, y in inside], "o", color=_color(number))
    axes.set_xticks(range(len(values)), [value or "–" for value in values])
    axes.set_xlabel(short_name(path))
