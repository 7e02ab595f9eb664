"""Suites: several grids trained by one command, each in a folder named after its task."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from regard.comparison.folder import require_comparison
from regard.comparison.grid import Axes, Grid, axis_values
from regard.comparison.plan import PlannedComparison
from regard.comparison.scheduler import train_comparison
from regard.comparison.summary import save_index, suite_tasks
from regard.comparison.table import Comparison
from regard.config import convert, parse_toml
from regard.errors import UserError, alternatives

_FOLDER = files("regard.comparison") / "suites"


class Suite(Axes, frozen=True, kw_only=True):
    """Grids of different tasks, and their common settings and axes.

    Settings that a grid gives for a value of an axis replace those of the suite.
    """

    grids: tuple[Grid, ...]
    """One grid per task."""


def suites() -> list[str]:
    """Return the names of all suites."""
    names = (file.name for file in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_suite(name: str) -> list[Grid]:
    """Return the grids of a suite, with its common settings and axes filled in.

    Raises:
        UserError: there is no such suite.
    """
    if name not in suites():
        raise UserError(f"--suite {name}: no such suite; {alternatives(name, suites())}")
    text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    suite = convert(parse_toml(text, where=name), Suite, where=name)
    return [
        msgspec.structs.replace(
            grid,
            settings=(*suite.settings, *grid.settings),
            over=axis_values(suite.over) | axis_values(grid.over),
            tune=axis_values(suite.tune) | axis_values(grid.tune),
            options=suite.options | grid.options,
            seeds=suite.seeds,
        )
        for grid in suite.grids
    ]


def train_suite(
    planned: Sequence[PlannedComparison], out: Path, *, jobs: int | None = None
) -> Iterator[tuple[str, Comparison]]:
    """Train one comparison after another; yield each with its task, and update the index.

    Raises:
        UserError: a task's folder holds something else; or as `train_comparison`.
    """
    for one in planned:
        require_comparison(out / one.grid.task)
    known = suite_tasks(out) if out.is_dir() else []
    found = {task: Comparison.load(out / task) for task in known}
    for one in planned:
        task = one.grid.task
        found[task] = train_comparison(one, out / task, jobs=jobs)
        save_index(out, found)
        yield task, found[task]
