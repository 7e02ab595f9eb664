"""Matplotlib figures as SVG that suits a light and a dark page, and as PNG."""

import io
import re
from html import escape
from typing import Any

from cycler import cycler
from matplotlib.figure import Figure

INK = "#010203"
"""Stands for the page's text colour, which is put in afterwards."""
COLOURS = ("#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d")
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "figure.facecolor": "none",
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
}
"""For `matplotlib.rc_context`: lines and text in ink, nothing behind them."""


def to_svg(figure: Figure, title: str, *, name: str | None = None) -> str:
    """The figure as an SVG element that says `title` to who can't see it.

    Its ids begin with `name` (else with the title), so that several fit on one page.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    own = re.sub(r"\W+", "-", (name or title).lower()).strip("-")
    svg = re.sub(r'\bid="', f'id="{own}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{own}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title, quote=True)}" ', 1)


def to_png(figure: Figure) -> bytes:
    """The figure as a picture on white."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return file.getvalue()
