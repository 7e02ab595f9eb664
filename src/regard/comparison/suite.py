"""Suites: grids that one command trains, each a comparison in a folder named after its task."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from regard.comparison.export import interval
from regard.comparison.grid import Grid, change_grid, flatten
from regard.comparison.table import Comparison
from regard.config import Config, convert, parse_toml
from regard.errors import UserError, alternatives
from regard.files import write_file

INDEX = "index.md"
_FOLDER = files("regard.comparison") / "suites"


class Suite(Config, frozen=True):
    """Grids of different tasks, and what they have in common."""

    grids: tuple[Grid, ...]
    """One grid per task."""
    settings: tuple[str, ...] = ()
    """Settings of all cells of all grids."""
    over: dict[str, Any] = msgspec.field(default_factory=dict)
    """Compared axes of all grids."""
    tune: dict[str, Any] = msgspec.field(default_factory=dict)
    """Tuned axes of all grids."""
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Number of seeds of all grids."""


def suites() -> list[str]:
    """Return the names of all suites."""
    names = (file.name for file in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_suite(name: str) -> list[Grid]:
    """Return the grids of a suite, complete with what they have in common.

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
            over=flatten(suite.over) | flatten(grid.over),
            tune=flatten(suite.tune) | flatten(grid.tune),
            seeds=suite.seeds,
        )
        for grid in suite.grids
    ]


def change_suite(
    grids: Sequence[Grid], settings: Sequence[str], given: Mapping[str, Any]
) -> list[Grid]:
    """Return grids with what the command line gives, which holds for each of them.

    Raises:
        UserError: as `change_grid`.
    """
    return [change_grid(grid, grid.task, settings, given) for grid in grids]


def save_index(out: Path, found: Mapping[str, Comparison]) -> Path:
    """Write the best row of each task with a link to its page, and return the file's path."""
    lines = ["| task | first rank | score | cells that have ended |", "|---|---|---|---|"]
    lines += [_index_line(task, comparison) for task, comparison in found.items()]
    path = out / INDEX
    write_file(path, ("\n".join(lines) + "\n").encode())
    return path


def _index_line(task: str, comparison: Comparison) -> str:
    best = comparison.best()
    values = ", ".join(str(best[path]) for path in comparison.sweep.over) if best else "–"
    score = f"{comparison.score} {interval(best, 'test', '')}" if best else "–"
    ended = sum(cell.outcome is not None for cell in comparison.cells)
    cells = f"{ended} of {len(comparison.cells)}"
    return f"| [{task}]({task}/report.html) | {values} | {score} | {cells} |"
