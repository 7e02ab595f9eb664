"""Matplotlib figures as SVG that suits a light and a dark page, and as PNG."""

import io
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from math import ceil
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure

from regard.italics import in_formula_font, plain

INK = "#010203"
"""Placeholder for the text color of the page, which `to_svg` inserts."""
COLORS = ("#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d")
FONTS = "DejaVu Sans, Verdana, sans-serif"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",
    "font.family": ["DejaVu Sans", "STIXGeneral"],  # the second for italic letters of formulas
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLORS),
    "figure.facecolor": "none",
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
}
"""For `matplotlib.rc_context`: lines and text in ink on a transparent background."""


@contextmanager
def panels(
    columns: int = 1, rows: int = 1, *, height: float = 3.4, width: float = 6.4
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure in this style, sizes in inches, and its axes row by row."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def heat_map(
    axes: Axes, matrix: Float[np.ndarray, "queries keys"], *, strongest: float = 1.0
) -> None:
    """Draw weights as opacity, from none at 0 to full at `strongest`; below 0 in another color."""
    axes.imshow(_colors(matrix / strongest), interpolation="nearest", aspect="auto")
    axes.set(xticks=[], yticks=[])
    _frame(axes)


def color_bar(
    figure: Figure, axes: Sequence[Axes], *, strongest: float, signed: bool, label: str
) -> None:
    """Draw the color scale of heat maps to their right."""
    low = -strongest if signed else 0.0
    scale = figure.colorbar(ScalarMappable(Normalize(low, strongest)), ax=axes, label=label)
    assert scale.solids is not None
    scale.solids.set_visible(False)  # matplotlib has no scale of opacity
    values = np.linspace(low, strongest, 64)[:, None]
    extent = (0, 1, low, strongest)
    scale.ax.imshow(_colors(values / strongest), origin="lower", extent=extent, aspect="auto")
    _frame(scale.ax)


def color_scale(axes: Axes, *, strongest: float, signed: bool, label: str) -> None:
    """Draw the color scale of heat maps from left to right."""
    low = -strongest if signed else 0.0
    values = np.linspace(low, strongest, 64)[None]
    axes.imshow(_colors(values / strongest), extent=(low, strongest, 0, 1), aspect="auto")
    axes.set(xlabel=label, yticks=[])
    _frame(axes)


def _colors(matrix: Float[np.ndarray, "queries keys"]) -> Float[np.ndarray, "queries keys 4"]:
    image = np.zeros((*matrix.shape, 4))
    image[..., :3] = np.where(matrix[..., None] < 0, to_rgb(COLORS[1]), to_rgb(COLORS[0]))
    image[..., 3] = np.clip(np.abs(matrix), 0, 1)
    return image


def _frame(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.4)


def to_svg(figure: Figure, title: str, *, name: str | None = None) -> str:
    """Return the figure as an SVG element labeled with `title`.

    Its ids begin with `name` (by default the title), so that a page can hold several. Italic
    letters of Unicode's mathematical alphabet are in the font of formulas.
    """
    file = io.StringIO()
    with _any_glyph():
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    # An image's id is a hash of its pixels: two equal color bars would share it.
    svg = re.sub(r'(<image\b[^>]*) id="[^"]*"', r"\1", svg)
    own = re.sub(r"\W+", "-", (name or title).lower()).strip("-")
    svg = re.sub(r'\bid="', f'id="{own}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{own}-", svg)
    svg = in_formula_font(_compact(re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)))
    label = (
        f'<svg role="img" aria-label="{escape(plain(title), quote=True)}" font-family="{FONTS}" '
    )
    return svg.replace("<svg ", label, 1)


def _compact(svg: str) -> str:
    """Remove what draws nothing: unused ids, repeated fonts, line ends, spaces, far decimals."""
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"(?<=[\" ])font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"', "", svg)
    svg = re.sub(r' style="[^"]*"', lambda found: re.sub(r"(?<=[:;]) ", "", found[0]), svg)
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: _round(found[0]), svg)
    return re.sub(r"\s*\n\s*", " ", re.sub(r">\s*\n\s*<", "><", svg)).strip()


def _round(attribute: str) -> str:
    """Round coordinates to hundredths, and leave out spaces around the letters of a path."""
    rounded = re.sub(
        r"\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), attribute
    )
    return re.sub(r"\s*([MLCQZz])\s*", r"\1", rounded)


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG on a white background."""
    file = io.BytesIO()
    with _any_glyph():
        figure.savefig(file, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return file.getvalue()


@contextmanager
def _any_glyph() -> Iterator[None]:
    """Draw characters that the font doesn't have as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        yield


# Charts

CHART_WIDTH = 4.4
"""Width of a chart in inches: that of a phone, so that text stays readable there."""
SHORT = 20
"""Longest name in a legend of two columns, in letters."""

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
    """Return a chart of named curves and named points, as SVG."""
    points = points or {}
    names = [*curves, *points]
    with panels(height=2.8 + _legend_height(names), width=CHART_WIDTH) as (figure, (axes,)):
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


def interval_chart(values: Mapping[str, tuple[float, float, float]], *, x: str, title: str) -> str:
    """Return a bar chart of (value, low, high) with intervals, the first on top, as SVG."""
    with panels(height=0.5 + 0.42 * len(values), width=CHART_WIDTH) as (figure, (axes,)):
        for row, (value, low, high) in enumerate(values.values()):
            axes.barh(row, value, color=COLORS[row % len(COLORS)], height=0.6)
            axes.plot([low, high], [row, row], color=INK, linewidth=1.2)
        axes.set_yticks(range(len(values)), list(values))
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        figure.supxlabel(x, fontsize="medium")  # which may be wider than the axes
        return to_svg(figure, title)


def histogram(groups: Mapping[str, Sequence[float]], *, x: str, title: str) -> str:
    """Return overlaid histograms of groups, as SVG."""
    with panels(height=3.0, width=CHART_WIDTH) as (figure, (axes,)):
        everything = np.concatenate([np.asarray(values) for values in groups.values()])
        bins = np.linspace(everything.min(), everything.max() + 1e-9, 40).tolist()
        for name, values in groups.items():
            axes.hist(values, bins=bins, alpha=0.6, label=name)
        axes.set_xlabel(x)
        axes.set_ylabel("people")
        _draw_legend(figure, groups)
        return to_svg(figure, title)


def _columns(names: Collection[str]) -> int:
    """Return the number of columns in which a legend fits the width."""
    return 2 if max(map(len, names)) <= SHORT else 1


def _legend_height(names: Collection[str]) -> float:
    return 0.2 * ceil(len(names) / _columns(names)) + 0.2


def _draw_legend(figure: Figure, names: Collection[str]) -> None:
    figure.legend(loc="outside lower center", ncols=_columns(names))
