"""Charts of studies."""

import pytest

from regard.metrics import Interval
from regard.studies.charts import bar_chart, bar_panel, chart
from regard.studies.figure import Line, bars, series


def test_what_is_drawn_is_sorted_by_its_kind() -> None:
    line, curve, bar = Line(y=1.0), series([0, 1], [2, 3]), bars([4])
    made = chart(line, curve, bar, x="places", y_limits=(0, 5))
    assert (made.series, made.bars, made.lines) == ([curve], [bar], [line])
    assert (made.x, made.y_limits) == ("places", (0, 5))
    with pytest.raises(TypeError, match="nonsense"):
        chart(line, nonsense=1)


def test_bars_are_named_below_and_labeled_in_the_legend() -> None:
    figure = bar_chart({"one": {"a": 1, "b": 2.5}, "two": {"a": 3, "b": 4}}, caption="seen")
    (panel,) = figure.panels
    assert panel == bar_panel({"one": {"a": 1, "b": 2.5}, "two": {"a": 3, "b": 4}})
    assert panel == chart(bars([1, 2.5], "one"), bars([3, 4], "two"), names=["a", "b"])
    assert figure.caption == "seen"


def test_scores_show_their_intervals() -> None:
    (bar,) = bar_panel({"": {"a": Interval(0.5, 0.4, 0.7), "b": Interval(0, 0, 0.1)}}).bars
    assert (bar.low, bar.values, bar.high) == ([0.4, 0], [0.5, 0], [0.7, 0.1])
