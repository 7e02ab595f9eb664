"""Results of a study: measurements with their bounds, a figure, a table and a verdict."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, SupportsFloat

import msgspec
from matplotlib.figure import Figure

from regard.drawing import to_png, to_svg
from regard.explorer.look import View
from regard.runs.run import Run

MAX_KEYS = 64
"""Most keys on an explorer page of a study."""


class Verdict(StrEnum):
    """Whether the measurements support a claim."""

    HOLDS = "holds"
    CONDITIONAL = "holds under a condition"
    FAILS = "fails"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value and the bounds of the claim."""

    name: str
    measured: float
    predicted: float | None = None
    """Value of a formula, if any."""
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the measured value lies within the bounds; NaN never does."""
        above = self.low is None or self.measured >= self.low
        below = self.high is None or self.measured <= self.high
        return above and below and self.measured == self.measured

    @property
    def expected(self) -> str:
        """The bounds in words."""
        if self.low is not None and self.low == self.high:
            return f"= {self.low:.6g}"
        if self.predicted is not None and self.high is not None:
            return f"{self.predicted:.6g} ± {self.high - self.predicted:.2g}"
        low = "" if self.low is None else f"≥ {self.low:.4g}"
        high = "" if self.high is None else f"≤ {self.high:.4g}"
        return " and ".join(filter(None, (low, high)))


def equal(
    name: str, measured: SupportsFloat, predicted: SupportsFloat, within: float = 0.0
) -> Measurement:
    """Return a measurement that must equal a prediction, up to a tolerance."""
    expected = float(predicted)
    low, high = expected - within, expected + within
    return Measurement(name=name, measured=float(measured), predicted=expected, low=low, high=high)


def at_least(name: str, measured: SupportsFloat, low: SupportsFloat) -> Measurement:
    """Return a measurement with a lower bound."""
    return Measurement(name=name, measured=float(measured), low=float(low))


def at_most(name: str, measured: SupportsFloat, high: SupportsFloat) -> Measurement:
    """Return a measurement with an upper bound."""
    return Measurement(name=name, measured=float(measured), high=float(high))


def informational(name: str, measured: SupportsFloat) -> Measurement:
    """Return a measurement that is informational, not checked."""
    return Measurement(name=name, measured=float(measured))


class Table(msgspec.Struct, frozen=True):
    """Columns and rows as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Return a table; floats are shown with four digits."""
    return Table(tuple(columns), tuple(tuple(_shown(cell) for cell in row) for row in rows))


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


class Drawing(msgspec.Struct, frozen=True):
    """A figure as SVG and PNG."""

    svg: str
    """For light and dark pages; `alt` is its label."""
    png: bytes
    """On a white background."""
    alt: str
    """Text alternative."""


def drawing(figure: Figure, alt: str, *, name: str) -> Drawing:
    """Return a matplotlib figure in `regard.drawing.STYLE` as SVG and PNG."""
    return Drawing(svg=to_svg(figure, alt, name=name), png=to_png(figure), alt=alt)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a study measured."""

    numbers: tuple[Measurement, ...]
    """Measurements that the claim depends on."""
    figure: Drawing
    table: Table | None = None
    condition: str = ""
    """Condition of the claim, if any; `numbers` are measured under it."""
    outside_condition: tuple[Measurement, ...] = ()
    """Measurements where the condition isn't met."""
    explorer_view: dict[str, Any] | None = None
    """Data of an explorer page, `explorer.look.View.data`, if the study has heads to show."""

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim, from the measurements."""
        if not all(number.holds for number in self.numbers):
            return Verdict.FAILS
        if not all(number.holds for number in self.outside_condition):
            return Verdict.CONDITIONAL
        return Verdict.HOLDS

    def csv(self) -> str:
        """All measurements as CSV, one per line."""
        file = io.StringIO()
        fields = ("name", "measured", "predicted", "low", "high", "holds")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("under", *fields))
        for under, numbers in (
            ("condition", self.numbers),
            ("outside condition", self.outside_condition),
        ):
            for number in numbers:
                writer.writerow((under, *(getattr(number, field) for field in fields)))
        return file.getvalue()


def if_readable(view: View) -> dict[str, Any] | None:
    """Return the data of an explorer page, or None if the view has more than `MAX_KEYS` keys."""
    most = max(len(one.keys) for panel in view.panels for one in panel.maps)
    return view.data if most <= MAX_KEYS else None


def named(run: Run, name: str) -> Run:
    """Return a run with a descriptive name for pages, instead of its folder's."""
    return replace(run, path=Path(name))
