"""What a study finds: numbers beside what was predicted, a figure, a table, and a verdict."""

import csv
import io
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, SupportsFloat

import msgspec
from matplotlib.figure import Figure

from regard.drawing import to_png, to_svg


class Verdict(StrEnum):
    """Whether a claim is true of what was measured."""

    HOLDS = "holds"
    CONDITIONAL = "holds under a condition"
    FAILS = "fails"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value and the bounds that the claim sets."""

    name: str
    measured: float
    predicted: float | None = None
    """By a formula, where there is one."""
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
    """A measurement that must equal a prediction, to within so much."""
    expected = float(predicted)
    low, high = expected - within, expected + within
    return Measurement(name=name, measured=float(measured), predicted=expected, low=low, high=high)


def at_least(name: str, measured: SupportsFloat, low: SupportsFloat) -> Measurement:
    """A measurement that must not be less than a bound."""
    return Measurement(name=name, measured=float(measured), low=float(low))


def at_most(name: str, measured: SupportsFloat, high: SupportsFloat) -> Measurement:
    """A measurement that must not be more than a bound."""
    return Measurement(name=name, measured=float(measured), high=float(high))


def informational(name: str, measured: SupportsFloat) -> Measurement:
    """A measurement that is informational, not checked."""
    return Measurement(name=name, measured=float(measured))


class Table(msgspec.Struct, frozen=True):
    """Columns and rows, as shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
    """A table; numbers are shown with four digits."""
    return Table(tuple(columns), tuple(tuple(_shown(cell) for cell in row) for row in rows))


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


class Drawing(msgspec.Struct, frozen=True):
    """A figure, ready to be shown."""

    svg: str
    """Suits a light and a dark page; says `alt` to who can't see it."""
    png: bytes
    """On white."""
    alt: str
    """What is to be seen, in words."""


def drawing(figure: Figure, alt: str, *, name: str) -> Drawing:
    """A figure of matplotlib, drawn with `regard.drawing.STYLE`."""
    return Drawing(svg=to_svg(figure, alt, name=name), png=to_png(figure), alt=alt)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a study measured."""

    numbers: tuple[Measurement, ...]
    """On which the claim depends."""
    figure: Drawing
    table: Table | None = None
    condition: str = ""
    """Under which the claim is made, if any; the other numbers are measured under it."""
    outside_condition: tuple[Measurement, ...] = ()
    """What the claim requires where the condition isn't met."""
    explorer_view: dict[str, Any] | None = None
    """What the explorer shows of heads that the study is about: `explorer.look.View.data`."""

    @property
    def verdict(self) -> Verdict:
        """From the numbers alone."""
        if not all(number.holds for number in self.numbers):
            return Verdict.FAILS
        if not all(number.holds for number in self.outside_condition):
            return Verdict.CONDITIONAL
        return Verdict.HOLDS

    def csv(self) -> str:
        """All numbers, a line each."""
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
