"""Pages of measurements: one offline file with a chart and tables."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from regard.drawing import to_svg
from regard.edits.table import Rows, html_table, text_table
from regard.files import offline_page, packaged_text, write_file


class Measured(ABC):
    """A measurement that a page shows."""

    run: str
    """Name of the run."""

    @property
    def title(self) -> str:
        """Title: the measurement and the run."""
        return f"{type(self).__name__}: {self.run}"

    @abstractmethod
    def lines(self) -> list[str]:
        """Return notes on the method and the data, as text."""

    def table(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(text_table(rows) for rows in self.tables().values())

    @abstractmethod
    def tables(self) -> Mapping[str, Rows]:
        """Return the tables by caption."""

    @abstractmethod
    def figure(self) -> Figure:
        """Return the chart."""


def save_page(found: Measured, path: Path) -> None:
    """Write the page of a measurement."""
    write_file(path, page(found).encode())


def page(found: Measured) -> str:
    """Return a self-contained page."""
    return offline_page(
        "edits/static/page.html",
        title=found.title,
        style=packaged_text("edits/static/page.css"),
        summary="".join(f"<p>{_sentence(line)}</p>" for line in found.lines()),
        figure=to_svg(found.figure(), found.title),
        tables="".join(_table(caption, rows) for caption, rows in found.tables().items()),
    )


def _sentence(line: str) -> str:
    return f"{escape(line[:1].upper() + line[1:])}."


def _table(caption: str, rows: Rows) -> str:
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">'
        f"<table><caption>{name}</caption>{html_table(rows)}</table></div>"
    )
