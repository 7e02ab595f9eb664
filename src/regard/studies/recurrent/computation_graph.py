"""A recurrent network as a graph without loops."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from regard.drawing import COLORS, INK, panels
from regard.studies.finding import Drawing, drawing

_LEVELS = ("x", "z", "h", "o", "ŷ", "J")
"""What a step computes, from below."""
_DIGITS = "₀₁₂₃₄"


def computation_graph(steps: int) -> Drawing:
    """What each step computes, unrolled: at most five steps."""
    with panels(height=4.6) as (figure, (axes,)):
        axes.set(xlim=(-1.6, 2 * steps - 0.4), ylim=(-0.5, 6.5))
        axes.set_axis_off()
        _node(axes, (-1.2, 2), "h₀")
        _node(axes, (steps - 1, 6), "J")
        for t in range(steps):
            _step(axes, t)
            _arrow(axes, (2 * t, 5), (steps - 1, 6))
        return drawing(
            figure,
            "The computation graph. In each step an arrow leads from x to z, to h, to o, to ŷ and "
            "to that step's loss; from h another one leads to the z of the next step, with W_hh. "
            "The losses add up to J. Gradients flow against the arrows.",
            name="backpropagation-through-time",
        )


def _step(axes: Axes, t: int) -> None:
    """The nodes of one step, and the arrows that lead to them."""
    weights = {"z": "W_hx", "h": "ψ", "o": "W_yh", "ŷ": "softmax"}
    for level, name in enumerate(_LEVELS):
        place = (2.0 * t, float(level))
        _node(axes, place, name + _DIGITS[t + 1])
        if level:
            _arrow(axes, (place[0], place[1] - 1), place)
            axes.text(place[0] + 0.06, level - 0.5, weights.get(name, ""), fontsize=7, va="center")
    _node(axes, (2 * t + 0.75, 5), "y" + _DIGITS[t + 1])
    _arrow(axes, (2 * t + 0.75, 5), (2 * t, 5))
    before = (2 * t - 2, 2) if t else (-1.2, 2)
    _arrow(axes, before, (2 * t, 1), COLORS[1])
    middle = (before[0] + 2 * t) / 2
    axes.text(middle, 1.62, "W_hh", fontsize=7, color=COLORS[1], ha="left")


def _node(axes: Axes, place: Sequence[float], name: str) -> None:
    circle = {"boxstyle": "circle,pad=0.25", "facecolor": "none", "edgecolor": INK}
    axes.text(place[0], place[1], name, ha="center", va="center", bbox=circle, fontsize=9)


def _arrow(axes: Axes, start: Sequence[float], end: Sequence[float], color: str = INK) -> None:
    style = {"arrowstyle": "->", "color": color, "shrinkA": 11, "shrinkB": 11, "linewidth": 0.9}
    axes.annotate("", xy=(end[0], end[1]), xytext=(start[0], start[1]), arrowprops=style)
