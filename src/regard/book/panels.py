"""Figures of findings in pages: panels side by side, or below each other if the page is narrow."""

import re
from collections.abc import Sequence

from markupsafe import Markup

from regard.studies.finding import Finding

_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_SIZE = re.compile(r'width="[^"]*" height="[^"]*" viewBox="[^"]*"')
_LABEL = re.compile(r'aria-label="[^"]*"')
_CLIP = re.compile(r"<clipPath.*?</clipPath>", re.DOTALL)
WIDE = 2.7
"""Aspect ratio from which a figure is below its text on a slide."""


def first_figure(finding: Finding, panels: Sequence[str]) -> Markup:
    """Return a figure whose panels have ids, for reuse in the page."""
    named = [
        svg.replace("<svg ", f'<svg id="{_id(finding, place)}" ', 1)
        for place, svg in enumerate(panels)
    ]
    return _arranged(finding, named)


def same_figure(finding: Finding, panels: Sequence[str]) -> Markup:
    """Return the figure again, as references to its panels."""
    again = [
        f'<svg role="img" {_found(_LABEL, svg)[0]} {_found(_SIZE, svg)[0]}>'
        f'<use href="#{_id(finding, place)}" width="100%" height="100%"/></svg>'
        for place, svg in enumerate(panels)
    ]
    return _arranged(finding, again)


def is_wide(finding: Finding, panels: Sequence[str]) -> bool:
    """Return whether a figure is too wide to stand beside text."""
    columns, rows = finding.figure.grid
    box = _found(_BOX, panels[0])
    return columns * float(box[1]) > WIDE * rows * float(box[2])


def with_clips_apart(page: str) -> str:
    """Move the clip paths of all figures to an element that is never hidden.

    Browsers ignore the clip paths of a hidden figure that is drawn again by reference.
    """
    clips = "".join(_CLIP.findall(page))
    apart = f'<svg class="clips" width="0" height="0" aria-hidden="true">{clips}</svg>\n</body>'
    return _CLIP.sub("", page).replace("</body>", apart)


def _arranged(finding: Finding, panels: Sequence[str]) -> Markup:
    """Return panels in a grid; a legend that they share spans all columns."""
    columns, rows = finding.figure.grid
    least = float(_found(_BOX, panels[0])[1])
    n = len(finding.figure.panels)
    style = f"--columns: {columns}; --rows: {rows}; --least: {least:.0f}px"
    legend = f'<div class="legend">{"".join(panels[n:])}</div>' if panels[n:] else ""
    return Markup(f'<div class="panels" style="{style}">{"".join(panels[:n])}{legend}</div>')


def _id(finding: Finding, place: int) -> str:
    return f"figure-{finding.study.name}-{place + 1}"


def _found(pattern: re.Pattern[str], svg: str) -> re.Match[str]:
    found = pattern.search(svg)
    assert found is not None
    return found
