"""Figures as data, and drawn."""

import math
import re

import msgspec
import numpy as np
import pytest
import torch

from regard.metrics import Interval
from regard.studies.figure import (
    Arrow,
    Bars,
    Chart,
    Figure,
    Graph,
    Line,
    Node,
    Panel,
    bar_chart,
    bars,
    chart,
    figure,
    formula_chart,
    heat_map,
    histogram,
    log_chart,
    series,
)
from regard.studies.render import to_panels, to_png, to_svg

CHART = Chart(
    series=[
        series([1, 2, 4], [1, 10, 100], "measured", "dots", low=[0.5, 9, 90], high=[2, 11, 110]),
        series([1, 2, 4], [1, 9, 90], "formula", low=[0.5, 8, 80], high=[2, 10, 100]),
    ],
    lines=[Line(x=2, label="two"), Line(y=50, label="fifty")],
    title="chart",
    x="width",
    y="size",
    x_scale="log",
    y_scale="log",
    x_ticks=[1, 2, 4],
)
BARS = Chart(
    bars=[bars([Interval(1, 0.5, 2), Interval(-2, -3, -1)], "first"), bars([2, 1], "second")],
    names=["one", "a name of several words"],
)
MAP = heat_map(
    [[0.31, 1.0], [-0.5, 0.0]], rows=["a", "b"], columns=["c", "d"], unit="weight", written=True
)
GRAPH = Graph(nodes=[Node(0, 0, "x"), Node(1, 1, "y")], arrows=[Arrow(start=0, end=1, label="W")])


@pytest.mark.parametrize("panel", [CHART, BARS, MAP, GRAPH], ids=["chart", "bars", "map", "graph"])
def test_a_figure_survives_json(panel: Panel) -> None:
    figure = Figure(panels=[panel, panel], caption="two of a kind", columns=1)
    stored = msgspec.json.encode(figure)
    assert msgspec.json.decode(stored, type=Figure) == figure


def test_numbers_may_be_arrays_and_tensors() -> None:
    made = series(np.array([1, 2]), torch.tensor([1 / 3, math.nan]), low=[math.inf, 0])
    assert made.x == [1, 2]
    assert made.y == [0.33333, None]
    assert made.low == [None, 0]
    assert heat_map(torch.eye(2)).values == [[1, 0], [0, 1]]


def test_a_chart_over_logarithmic_axes_has_a_line_for_each_name() -> None:
    chart = log_chart([1, 2, 4], {"a": [1, 10, 100], "b": [3, 2, 1]}, title="growth", x="width")
    assert [(one.label, one.y, one.style) for one in chart.series] == [
        ("a", [1, 10, 100], "line with dots"),
        ("b", [3, 2, 1], "line with dots"),
    ]
    assert (chart.title, chart.x, chart.x_ticks) == ("growth", "width", [1, 2, 4])
    assert chart.x_scale == chart.y_scale == "log"
    assert log_chart([1, 2], {"a": [0, 1]}, y_scale="linear").y_scale == "linear"


def test_a_histogram_counts_values_between_edges() -> None:
    made = histogram(torch.tensor([0.1, 0.2, 0.7]), [0, 0.5, 1])
    assert (made.x, made.y, made.style) == ([0, 0.5, 1], [2, 1], "steps")


def shown(*panels: Panel, columns: int | None = None) -> list[str]:
    """Return the texts of the drawn figure."""
    figure = Figure(panels=list(panels), caption='a "line" & more', columns=columns)
    svg = to_svg(figure, "test")
    assert 'aria-label="a &quot;line&quot; &amp; more"' in svg
    assert all(name.startswith("test-") for name in re.findall(r'\bid="([^"]*)"', svg))
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


NAMED = Chart(bars=[bars([1])], names=["encoder–\ndecoder"])


@pytest.mark.parametrize(
    ("panel", "texts"),
    [
        (CHART, ["chart", "width", "size", "two", "fifty", "measured", "formula", "1", "2", "4"]),
        (BARS, ["first", "second", "one", "a name of", "several words"]),
        (NAMED, ["encoder–", "decoder"]),
        (GRAPH, ["x", "y", "W"]),
    ],
    ids=["chart", "bars", "broken names", "graph"],
)
def test_a_panel_shows_its_labels_and_names(panel: Panel, texts: list[str]) -> None:
    assert set(texts) <= {text.strip() for text in shown(panel)}


def test_a_heat_map_shows_names_values_and_one_color_bar_for_a_scale() -> None:
    texts = shown(MAP, MAP, columns=1)
    assert texts.count("0.31") == texts.count("a") == 2
    assert texts.count("weight") == 1
    assert "−1.0" in texts or "−1.00" in texts, "the color bar of signed values is symmetric"
    assert shown(MAP, heat_map([[1]], unit="weight")).count("weight") == 2
    assert shown(MAP, CHART).count("weight") == 1


def test_a_legend_that_charts_share_is_shown_once() -> None:
    other = Chart(series=[series([0, 1], [0, 1], "formula")])
    assert shown(CHART, CHART).count("formula") == 1
    assert shown(CHART, other).count("formula") == 2


@pytest.mark.parametrize("columns", [1, 4])
def test_text_of_a_panel_is_readable_as_wide_as_a_phone(columns: int) -> None:
    """At 9 pixels or more, on the 318 pixels that a page of 390 leaves to a figure."""
    figure = Figure(panels=[CHART, MAP, GRAPH, BARS], caption="narrow", columns=columns)
    for svg in to_panels(figure, "narrow"):
        width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
        assert width is not None
        sizes = [float(size) for size in re.findall(r"font-size:([\d.]+)px", svg)]
        assert min(sizes) * 318 / float(width[1]) >= 9


def test_panels_share_a_legend_or_a_scale_which_comes_last() -> None:
    def texts(*panels: Panel) -> list[list[str]]:
        several = to_panels(Figure(panels=list(panels), caption="shared"), "shared")
        return [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in several]

    first, second, *legend = texts(BARS, BARS)
    assert legend == [["first"], ["second"]]
    assert "first" not in [*first, *second]
    first, second, scale = texts(MAP, MAP)
    assert "weight" in scale
    assert "weight" not in [*first, *second]
    apart = texts(MAP, CHART, BARS)
    assert len(apart) == 3
    assert "weight" in apart[0]
    assert "formula" in apart[1]
    assert "second" in apart[2]


def test_missing_values_and_log_scales_are_drawn() -> None:
    gap = Chart(series=[series([1, 2, 3], [math.nan, 0, 1])], y_scale="log")
    steps = Chart(series=[histogram([1, 2], [0, 1, 2], "draws")])
    nothing = Chart(bars=[Bars(values=[])])
    figure = Figure(panels=[gap, steps, nothing], caption="gaps", columns=2)
    assert to_png(figure).startswith(b"\x89PNG")
    assert to_svg(figure, "gaps") == to_svg(figure, "gaps")
    assert "mathdefault" not in to_svg(figure, "gaps"), "powers of ten, not TeX"


def test_any_text_is_drawn_as_it_stands() -> None:
    named = heat_map([[1.0]], rows=["a $x_1$ and $"], columns=["\ud7fc"], title="100% & <b>")
    texts = shown(named)
    assert "a $x_1$ and $" in texts
    assert to_png(Figure(panels=[named], caption="odd")).startswith(b"\x89PNG")


def test_two_equal_panels_share_no_id() -> None:
    svg = to_svg(Figure(panels=[MAP, MAP, CHART], caption="two equal maps"), "maps")
    ids = re.findall(r'\bid="([^"]*)"', svg)
    assert len(set(ids)) == len(ids)


# Usual charts


def test_what_is_drawn_is_sorted_by_its_kind() -> None:
    line, curve, bar = Line(y=1.0), series([0, 1], [2, 3]), bars([4])
    made = chart(line, curve, bar, x="places", y_limits=(0, 5))
    assert (made.series, made.bars, made.lines) == ([curve], [bar], [line])
    assert (made.x, made.y_limits) == ("places", (0, 5))
    with pytest.raises(TypeError, match="nonsense"):
        chart(line, nonsense=1)


def test_bars_are_named_below_and_labeled_in_the_legend() -> None:
    panel = bar_chart({"one": {"a": 1, "b": 2.5}, "two": {"a": 3, "b": 4}})
    assert panel == chart(bars([1, 2.5], "one"), bars([3, 4], "two"), names=["a", "b"])
    captioned = figure(panel, seen=5).with_caption("{n} names, {seen:.1f} seen", {"n": 2})
    assert captioned == Figure(panels=[panel], caption="2 names, 5.0 seen")


def test_scores_show_their_intervals() -> None:
    (bar,) = bar_chart({"": {"a": Interval(0.5, 0.4, 0.7), "b": Interval(0, 0, 0.1)}}).bars
    assert (bar.low, bar.values, bar.high) == ([0.4, 0], [0.5, 0], [0.7, 0.1])


def test_measured_values_have_the_color_of_their_formula() -> None:
    formulas = {"square": lambda x: x**2, "double": lambda x: 2 * x}
    drawn = formula_chart([1, 2, 3], formulas, {"double": {2: 4.1}}, Line(y=1), y_scale="log")
    assert [(one.label, one.style, one.color) for one in drawn.series] == [
        *(("square", "line", 0), ("double", "line", 1), ("", "dots", 1)),
    ]
    assert [one.y for one in drawn.series] == [[1, 4, 9], [2, 4, 6], [4.1]]
    assert drawn.series[-1].x == [2]
    assert drawn.lines == [Line(y=1)]
    assert drawn.y_scale == "log"
