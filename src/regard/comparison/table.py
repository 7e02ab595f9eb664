"""The table of a comparison: a row for each combination of compared values.

Tuned values are chosen by mean validation score over seeds; the test score of the choice is
reported. Doesn't import torch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isnan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from regard.comparison.folder import Cell, Costs, Sweep, load_sweep, read_cells
from regard.comparison.grid import Values, number_of, same_value, sort_key
from regard.comparison.statistics import Difference, compare_with, t_interval
from regard.errors import UserError, alternatives
from regard.metrics import HIGHEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
"""A row as plain values; None for missing ones."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A combination of tuned values in a row: a cell for each seed."""

    values: Values
    cells: Sequence[Cell]
    score: str

    def by_seed(self, part: str) -> dict[int, float]:
        """Return the "validation" or "test" score of each seed that has finished.

        Raises:
            UserError: the outcome of a cell is damaged.
        """
        found = {}
        for cell in self.cells:
            if cell.outcome is not None and cell.outcome.state == "finished":
                scores = getattr(cell.outcome, part)
                if self.score not in scores:
                    raise UserError(
                        f"{cell.path}/outcome.json: has no {part} {self.score}; delete it to train "
                        "the cell again"
                    )
                found[cell.seed] = scores[self.score]
        return found

    @cached_property
    def validation(self) -> float | None:
        """Mean validation score; None if a seed diverged or failed, or none has finished."""
        scores = self.by_seed("validation")
        return fmean(scores.values()) if scores and not self.n_lost else None

    @property
    def n_lost(self) -> int:
        """Number of seeds that diverged or failed."""
        outcomes = (cell.outcome for cell in self.cells)
        return sum(outcome is not None and outcome.state != "finished" for outcome in outcomes)

    @property
    def n_waiting(self) -> int:
        """Number of seeds that haven't ended."""
        return sum(cell.outcome is None for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A combination of compared values, with all of its tuned values."""

    values: Values
    candidates: Sequence[Candidate]
    within: float

    @property
    def name(self) -> str:
        """The compared values."""
        return ", ".join(value or "–" for value in self.values.values()) or "all"

    @cached_property
    def chosen(self) -> Candidate | None:
        """The best candidate by validation among those with the most finished seeds.

        Of equal ones, the candidate with the fewest values at edges of the grid.
        """
        possible = [one for one in self.candidates if one.validation is not None]
        if not possible:
            return None
        most = max(len(one.by_seed("validation")) for one in possible)
        full = [one for one in possible if len(one.by_seed("validation")) == most]
        return max(full, key=lambda one: (one.validation or 0.0, -len(self._edges(one))))

    @cached_property
    def is_undecided(self) -> bool:
        """Whether a candidate with fewer seeds, all ended, is better than the choice on them."""
        if self.chosen is None:
            return False
        best = self.chosen.by_seed("validation")
        for one in self.candidates:
            found = one.by_seed("validation")
            common = found.keys() & best.keys()
            if one.n_lost or one.n_waiting or len(found) >= len(best) or not common:
                continue
            if fmean(found[seed] for seed in common) > fmean(best[seed] for seed in common):
                return True
        return False

    @cached_property
    def edges(self) -> list[str]:
        """Numeric tuned axes whose chosen value is the lowest or highest that was tried."""
        return self._edges(self.chosen) if self.chosen else []

    def _edges(self, candidate: Candidate) -> list[str]:
        found = []
        for path, value in candidate.values.items():
            numbers = (number_of(one.values[path]) for one in self.candidates)
            tried = sorted(number for number in numbers if number is not None)
            if len(set(tried)) > 1 and number_of(value) in (tried[0], tried[-1]):
                found.append(path)
        return found

    def curve(self, path: str) -> dict[str, float | None]:
        """Return the mean validation score of each value of a tuned axis, best over other axes.

        None if no candidate with the value has a mean: a seed is lost, or none has finished.
        """
        values = sorted({one.values[path] for one in self.candidates}, key=sort_key)
        return {
            value: max(
                (
                    one.validation
                    for one in self.candidates
                    if one.values[path] == value and one.validation is not None
                ),
                default=None,
            )
            for value in values
        }

    def window(self, path: str) -> list[str]:
        """Return the values of a tuned axis whose mean is at most `within` below the best."""
        curve = {value: score for value, score in self.curve(path).items() if score is not None}
        best = max(curve.values(), default=0.0)
        within = self.within + 1e-9  # 1.0 - 0.95 is rounded to more than 0.05
        return [value for value, score in curve.items() if best - score <= within]

    @property
    def n_waiting(self) -> int:
        """Number of cells that haven't ended."""
        return sum(one.n_waiting for one in self.candidates)

    @property
    def n_lost(self) -> int:
        """Number of cells that diverged or failed."""
        return sum(one.n_lost for one in self.candidates)


@dataclass(frozen=True)
class Comparison:
    """The cells of a comparison's folder and their results so far.

    >>> from pathlib import Path
    >>> found = regard.Comparison.load(Path("grid"))
    >>> found.best()["model.attention.kind"], found.score
    ('softmax', 'accuracy')
    """

    out: Path
    sweep: Sweep
    cells: Sequence[Cell]

    @staticmethod
    def load(out: Path) -> "Comparison":
        """Read a folder.

        Raises:
            UserError: it isn't the folder of a comparison.
        """
        return Comparison(out, load_sweep(out), read_cells(out))

    @cached_property
    def scores(self) -> list[str]:
        """Names of the task's scores; empty until a cell has finished."""
        ended = (cell.outcome for cell in self.cells if cell.outcome)
        return next((list(outcome.test) for outcome in ended if outcome.test), [])

    @cached_property
    def score(self) -> str:
        """Name of the score that is compared.

        Raises:
            UserError: the task has no such score.
        """
        chosen = self.sweep.score or (self.scores[0] if self.scores else "")
        if self.scores:
            require_score(chosen, self.scores)
        return chosen

    @property
    def highest(self) -> float:
        """Highest possible score; the lowest is 0."""
        return HIGHEST[self.score] if self.score else inf

    @cached_property
    def rows(self) -> list[Row]:
        """All rows, in the order of the axes' values."""
        return [
            Row(values=values, candidates=self._candidates(cells), within=self.sweep.within)
            for values, cells in _grouped(self.cells, self.sweep.over)
        ]

    def _candidates(self, cells: Iterable[Cell]) -> list[Candidate]:
        return [
            Candidate(
                values=values,
                cells=sorted(same, key=lambda cell: cell.seed),
                score=self.score,
            )
            for values, same in _grouped(cells, self.sweep.tune)
        ]

    @cached_property
    def baseline(self) -> Row | None:
        """The row that others are compared with."""
        chosen = self.sweep.baseline
        matching = (
            row
            for row in self.rows
            if all(same_value(row.values.get(path, ""), value) for path, value in chosen.items())
        )
        return next(matching, None)

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Each row minus the baseline, by the names of the rows."""
        if self.baseline is None or self.baseline.chosen is None:
            return {}
        others = {
            row.name: row.chosen.by_seed("test")
            for row in self.rows
            if row.chosen and row is not self.baseline
        }
        return compare_with(self.baseline.chosen.by_seed("test"), others, self.highest)

    @cached_property
    def _means(self) -> dict[str, float]:
        """Mean test scores of the rows that can be ranked.

        Rows with unfinished cells are left out, as are rows with a chosen value at the edge of the
        grid, beyond which a better value may lie, and rows where a value with fewer seeds is better
        on these seeds.
        """
        return {
            row.name: fmean(row.chosen.by_seed("test").values())
            for row in self.rows
            if row.chosen and not (row.edges or row.n_waiting or row.is_undecided)
        }

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Rank of each row by its mean test score, 1 for the best; equal means share a rank.

        A row without a significant difference from the baseline has no rank; if there is such a
        row, the baseline has none either.
        """
        means, baseline = self._means, self.baseline.name if self.baseline else ""
        known = {name for name, found in self.differences.items() if found.distinct}
        tied = {row.name for row in self.rows if row.chosen} - {*known, baseline}
        if tied:
            tied.add(baseline)
        return {
            name: 1 + sum(other > mean for other in means.values())
            for name, mean in means.items()
            if name not in tied
        }

    def table(self) -> list[Record]:
        """Return the rows as plain records with equal keys; `pandas.DataFrame` takes them."""
        return [dict(self._records[row.name]) for row in self.rows]

    def by_score(self) -> list[tuple[Row, Record]]:
        """Return the rows with their records, the highest mean test score first."""
        found = [(row, self._records[row.name]) for row in self.rows]
        return sorted(found, key=lambda one: _or_lowest(one[1]["test"]), reverse=True)

    @cached_property
    def _records(self) -> dict[str, Record]:
        return {row.name: self._record(row) for row in self.rows}

    def best(self) -> Record | None:
        """Return the record with the highest mean test score; of equal ones, the first.

        None if no row is complete with its choice inside the grid. The record's verdict states
        whether the row differs significantly from the baseline.
        """
        if not self._means:
            return None
        return dict(self._records[max(self._means, key=self._means.__getitem__)])

    def figure(self) -> "Figure":
        """Return a Matplotlib figure of test scores with intervals and of tuning curves."""
        from regard.comparison.figure import draw

        return draw(self)

    def _record(self, row: Row) -> Record:
        chosen = row.chosen
        scores = list(chosen.by_seed("test").values()) if chosen else []
        test = t_interval(scores, 0.0, self.highest) if scores else None
        record: Record = dict(row.values)
        for path in self.sweep.sizes:
            record[path] = (chosen.cells[0].value(path) or None) if chosen else None
        for path in self.sweep.tune:
            record[path] = chosen.values[path] if chosen else None
            record[f"window of {path}"] = ", ".join(row.window(path)) or None
        record |= {
            "rank": self.ranks.get(row.name),
            "score": self.score or None,
            "validation": chosen.validation if chosen else None,
            "test": test.value if test else None,
            "test low": _or_none(test.low) if test else None,
            "test high": _or_none(test.high) if test else None,
            "seeds": len(scores),
            "waiting": row.n_waiting,
            "diverged or failed": row.n_lost,
            "at the edge": ", ".join(row.edges) or None,
            "better with fewer seeds": row.is_undecided,
        }
        return record | self._against_baseline(row) | _mean_costs(chosen.cells if chosen else ())

    def _against_baseline(self, row: Row) -> Record:
        found = self.differences.get(row.name)
        return {
            "difference": found.mean.value if found else None,
            "difference low": _or_none(found.mean.low) if found else None,
            "difference high": _or_none(found.mean.high) if found else None,
            "common seeds": found.seeds if found else None,
            "p (Holm)": _or_none(found.adjusted_p) if found else None,
            "verdict": self._verdict(row, found),
        }

    def _verdict(self, row: Row, found: Difference | None) -> str | None:
        if row is self.baseline:
            return "baseline"
        if found is None:
            return None
        if found.distinct:
            return "better" if found.mean.value > 0 else "worse"
        seeds = "1 seed" if found.seeds == 1 else f"{found.seeds} seeds"
        return f"{seeds} can't tell these apart"

    def failures(self) -> list[Record]:
        """Return the combinations that were refused, and the cells that diverged or failed."""
        refused = [
            {"cell": None, **one.values, "seed": None, "state": "refused", "step": None}
            | {"reason": one.reason}
            for one in self.sweep.refused
        ]
        axes = self.sweep.axes
        return refused + [
            {"cell": cell.path.name, **{path: cell.value(path) for path in axes}}
            | {"seed": cell.seed, "state": cell.outcome.state}
            | {"step": cell.outcome.step, "reason": cell.outcome.reason}
            for cell in self.cells
            if cell.outcome and cell.outcome.state != "finished"
        ]


def require_score(score: str, scores: Sequence[str]) -> None:
    """Check that a task has a score.

    Raises:
        UserError: it doesn't; the message lists the task's scores.
    """
    if score not in scores:
        raise UserError(f"--score {score}: no such score; {alternatives(score, scores)}")


MEASURED = ("seconds", "tokens_per_second", "peak_memory_mb")
"""Columns that differ between two trainings of the same cell."""


def _mean_costs(cells: Sequence[Cell]) -> Record:
    """Return the mean of each cost over the seeds that have finished."""
    costs = [cell.outcome.costs for cell in cells if cell.outcome and cell.outcome.costs]
    return {name: _mean([getattr(one, name) for one in costs]) for name in Costs.__struct_fields__}


def _mean(values: Sequence[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    equal = all(value == known[0] for value in known)  # counts stay whole numbers
    return known[0] if equal else fmean(known)


def _or_lowest(value: float | None) -> float:
    return -inf if value is None else value


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


# Order of values


def _grouped(
    cells: Iterable[Cell], axes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Values, list[Cell]]]:
    """Yield the cells of each combination of values, in the order of the axes' values."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(map(cell.value, axes)), []).append(cell)
    for values in sorted(groups, key=lambda values: _places(axes, values)):
        yield dict(zip(axes, values, strict=True)), groups[values]


def _places(axes: Mapping[str, Sequence[str]], values: Sequence[str]) -> list[tuple[int, str]]:
    """Return the indices of values among those of their axes; unknown ones come last."""
    return [
        (known.index(value) if value in known else len(known), value)
        for known, value in zip(axes.values(), values, strict=True)
    ]
