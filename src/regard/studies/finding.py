"""Results of a study: measurements with their bounds, a figure, a table and a verdict."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.resources.abc import Traversable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, TypeAlias

import msgspec
from torch import Tensor

from regard.attention import Attention
from regard.errors import UserError
from regard.explorer.from_tensors import look_at_attention
from regard.explorer.page import page
from regard.files import write_file
from regard.runs.run import Run
from regard.studies.figure import Figure
from regard.studies.render import to_panels, to_png, to_svg

if TYPE_CHECKING:
    from regard.studies.study import Study

MAX_KEYS = 64
"""Maximum number of keys on an explorer page of a study."""


class Verdict(StrEnum):
    """Whether the measurements support a claim."""

    HOLDS = "holds"
    CONDITIONAL = "holds under a condition"
    FAILS = "fails"
    DEPENDS = "depends on the seed"


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


Measurements: TypeAlias = Iterator[Measurement]
"""Measurements that a function yields."""


def equal(
    name: str, measured: SupportsFloat, predicted: SupportsFloat, within: SupportsFloat = 0.0
) -> Measurement:
    """Return a measurement that must equal a prediction, up to a tolerance."""
    expected, tolerance = float(predicted), float(within)
    bounds = {"low": expected - tolerance, "high": expected + tolerance}
    return Measurement(name=name, measured=float(measured), predicted=expected, **bounds)


def at_least(name: str, measured: SupportsFloat, low: SupportsFloat) -> Measurement:
    """Return a measurement with a lower bound."""
    return Measurement(name=name, measured=float(measured), low=float(low))


def at_most(name: str, measured: SupportsFloat, high: SupportsFloat) -> Measurement:
    """Return a measurement with an upper bound."""
    return Measurement(name=name, measured=float(measured), high=float(high))


def informational(name: str, measured: SupportsFloat) -> Measurement:
    """Return a measurement that is informational, not checked."""
    return Measurement(name=name, measured=float(measured))


def refused(call: Callable[[], object], *errors: type[Exception]) -> bool:
    """Return whether a call raises one of the given errors."""
    try:
        call()
    except errors:
        return True
    return False


class Table(msgspec.Struct, frozen=True):
    """Columns and rows as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Return a table; floats are shown with four digits."""
    return Table(tuple(columns), tuple(tuple(_shown(cell) for cell in row) for row in rows))


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one run of a study."""

    numbers: tuple[Measurement, ...]
    """Measurements that the claim depends on."""
    outside_condition: tuple[Measurement, ...] = ()
    """Measurements where the claim's condition isn't met."""

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim, from the measurements."""
        if not all(number.holds for number in self.numbers):
            return Verdict.FAILS
        met = all(number.holds for number in self.outside_condition)
        return Verdict.HOLDS if met else Verdict.CONDITIONAL


class Evidence(Measured, frozen=True, kw_only=True):
    """Measurements, table, figure and explorer view of a study."""

    condition: str = ""
    """Condition of the claim, if any; `numbers` are measured under it."""
    table: Table | None = None
    figure: Figure
    explorer_view: dict[str, Any] | None = None
    """Data of an explorer page, `explorer.page.View.data`, if the study has heads to show."""


class Outside(NamedTuple):
    """Measurements where the claim's condition isn't met."""

    condition: str
    numbers: Iterable[Measurement]


class Replication(Measured, frozen=True, kw_only=True):
    """Measurements with one of several seeds."""

    seed: int


def look_inside(attend: Attention, *inputs: Tensor, **labels: Any) -> dict[str, Any] | None:
    """Return the data of an explorer page of attention to tensors.

    `inputs` are query, key and value; `labels` are those of `regard.look_at_attention`.
    None if there are more than `MAX_KEYS` keys.
    """
    keys = inputs[1].shape[2]
    return look_at_attention(attend, *inputs, **labels).data if keys <= MAX_KEYS else None


def named(run: Run, name: str) -> Run:
    """Return a run with a descriptive name for pages, instead of that of its folder."""
    return replace(run, path=Path(name))


class Row(NamedTuple):
    """A measurement with all its seeds, as shown in tables."""

    name: str
    values: tuple[float | None, ...]
    """One per seed; None if a seed doesn't have this measurement."""
    expected: str
    """Bounds in words; those of the first seed, followed by "…", if they differ."""
    held: int
    """Number of seeds with a value within its bounds."""

    @property
    def range(self) -> str:
        """Least and largest value."""
        values = [value for value in self.values if value is not None]
        return f"{min(values):.4g} to {max(values):.4g}"

    @property
    def mark(self) -> str:
        """Whether the value lies within its bounds, or the number of seeds for which it does."""
        if not self.expected:
            return ""
        if len(self.values) > 1:
            return f"{self.held} of {len(self.values)}"
        return "✓" if self.held else "✗"


def _rows(replications: Sequence[Sequence[Measurement]]) -> tuple[Row, ...]:
    """Gather measurements of the same name over seeds."""
    each = [{number.name: number for number in numbers} for numbers in replications]
    rows = []
    for name in dict.fromkeys(name for numbers in each for name in numbers):
        found = [numbers.get(name) for numbers in each]
        present = [number for number in found if number]
        expected, *others = dict.fromkeys(number.expected for number in present)
        values = tuple(number.measured if number else None for number in found)
        held = sum(number.holds for number in present)
        rows.append(Row(name, values, expected + " …" * bool(others), held))
    return tuple(rows)


class _Stored(Evidence, frozen=True, kw_only=True):
    """A finding on disk."""

    parameters: dict[str, Any]
    seconds: float
    replications: tuple[Replication, ...] = ()
    """Measurements of each seed, if the study ran over several."""


class Finding(_Stored, frozen=True, kw_only=True):
    """Result of a study with given parameters. Displays itself in a notebook.

    With several seeds, figure, table and heads are those of the first.
    """

    study: "Study[Any]"

    @classmethod
    def load(cls, study: "Study[Any]", folder: Traversable) -> "Finding":
        """Load a saved finding.

        Raises:
            UserError: the folder has none.
        """
        place = folder / f"{study.name}.json"
        if not place.is_file():
            raise UserError(f"{place}: no such file; make it with `regard study run {study.name}`")
        stored = msgspec.json.decode(place.read_bytes(), type=_Stored)
        return cls(study=study, **msgspec.structs.asdict(stored))

    @property
    def command(self) -> str:
        """The command that repeats the study; one per seed unless the seeds are consecutive."""
        if not self.seeds:
            return self._command(self.parameters)
        first, count = self.seeds[0], len(self.seeds)
        if self.seeds == tuple(range(first, first + count)):
            return self._command(self.parameters | {"seeds": count})
        return " && ".join(self._command(self.parameters | {"seed": seed}) for seed in self.seeds)

    def _command(self, parameters: Mapping[str, Any]) -> str:
        values = [quote(f"{name}={_argument(value)}") for name, value in parameters.items()]
        return " ".join(["regard study run", self.study.name, *values])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the replications."""
        return tuple(one.seed for one in self.replications)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Measurements that the claim depends on, with all seeds."""
        return _rows([one.numbers for one in self._runs])

    @property
    def outside_condition_rows(self) -> tuple[Row, ...]:
        """Measurements where the condition isn't met, with all seeds."""
        return _rows([one.outside_condition for one in self._runs])

    def row(self, name: str) -> Row:
        """Return a measurement by name, with all seeds.

        Raises:
            KeyError: the finding has none of this name.
        """
        for row in (*self.rows, *self.outside_condition_rows):
            if row.name == name:
                return row
        raise KeyError(f"{self.study.name} has no measurement {name}")

    @property
    def _runs(self) -> Sequence[Measured]:
        own = Measured(numbers=self.numbers, outside_condition=self.outside_condition)
        return self.replications or (own,)

    @property
    def held(self) -> int:
        """Number of runs in which the claim holds, under its condition if it has one."""
        return sum(one.verdict is not Verdict.FAILS for one in self._runs)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim, from all runs."""
        if 0 < self.held < len(self._runs):
            return Verdict.DEPENDS
        verdicts = [one.verdict for one in self._runs]
        return Verdict.CONDITIONAL if Verdict.CONDITIONAL in verdicts else verdicts[0]

    @property
    def conclusion(self) -> str:
        """The verdict in words, with the number of seeds."""
        count = len(self.replications)
        if self.verdict is Verdict.DEPENDS:
            return f"{self.verdict} ({self.held} of {count})"
        return f"{self.verdict} for {count} of {count} seeds" if count else str(self.verdict)

    @property
    def caption(self) -> str:
        """Caption of the figure; also its text alternative."""
        return self.figure.caption

    def svg(self) -> str:
        """Draw the figure as an SVG element for light and dark pages."""
        return to_svg(self.figure, self.study.name)

    def panels(self) -> list[str]:
        """Draw the panels of the figure as SVG elements, then the legend or scale they share."""
        return to_panels(self.figure, self.study.name)

    def png(self) -> bytes:
        """Draw the figure as PNG on a white background."""
        return to_png(self.figure)

    def json(self) -> bytes:
        """Return the finding as JSON, one field per line; `load` reads it."""
        fields = {
            "study": self.study.name,
            "parameters": self.parameters,
            "seconds": round(self.seconds, 1),
            **{name: getattr(self, name) for name in Evidence.__struct_fields__},
            "replications": self.replications,
        }
        lines = [f'"{name}": '.encode() + msgspec.json.encode(x) for name, x in fields.items()]
        return b"{\n" + b",\n".join(lines) + b"\n}\n"

    def csv(self) -> str:
        """Return all measurements as CSV, one per line, with their seeds."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("seed", "under", *Measurement.__struct_fields__, "holds"))
        for seed, run in zip(self.seeds or (self.parameters.get("seed"),), self._runs, strict=True):
            groups = {"condition": run.numbers, "outside condition": run.outside_condition}
            for under, numbers in groups.items():
                for number in numbers:
                    values = msgspec.structs.astuple(number)
                    writer.writerow((seed, under, *values, number.holds))
        return file.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.json, .csv, .svg and .png, and NAME.html if there are heads to show.

        Returns the paths. Without heads, the NAME.html of an earlier run is deleted.
        """
        contents = {
            "json": self.json(),
            "csv": self.csv().encode(),
            "svg": _standalone(self.svg()).encode(),
            "png": self.png(),
        }
        if self.explorer_view:
            contents["html"] = page(self.explorer_view).encode()
        folder.mkdir(parents=True, exist_ok=True)
        places = [folder / f"{self.study.name}.{ending}" for ending in contents]
        for place, content in zip(places, contents.values(), strict=True):
            write_file(place, content)
        if not self.explorer_view:
            (folder / f"{self.study.name}.html").unlink(missing_ok=True)
        return places

    def _repr_html_(self) -> str:
        from regard.book.page import finding_html

        return finding_html(self)


def _argument(value: Any) -> str:
    """Return a value for the command line: a text as it is, others as JSON, which TOML reads."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _standalone(svg: str) -> str:
    """Return an SVG element as a file whose text color follows the light or dark theme."""
    dark = "@media(prefers-color-scheme:dark){svg:root{color:#e4e8ec}}"
    style = f"<style>svg:root{{color:#1c2530}}{dark}</style>"
    end = svg.index(">") + 1
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg[:end] + style + svg[end:]
