"""Suites: several grids trained by one command, each in a folder named after its task.

Doesn't import torch, which takes seconds.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from regard.comparison.export import interval
from regard.comparison.folder import is_sweep
from regard.comparison.grid import Axes, Grid, axis_values
from regard.comparison.page import summarize
from regard.comparison.table import Comparison
from regard.config import convert, parse_toml
from regard.errors import UserError, alternatives
from regard.files import write_file

INDEX = "index.md"
"""File in a suite's folder that links the pages of its tasks."""
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


# Results


def summarize_suite(out: Path) -> dict[str, Comparison]:
    """Write tables, pages and index of a suite's current results; return them by task."""
    found = {task: summarize(out / task) for task in suite_tasks(out)}
    save_index(out, found)
    return found


def suite_tasks(out: Path) -> list[str]:
    """Return the tasks in a suite's folder, by name; none if it isn't one."""
    if is_sweep(out):
        return []
    return sorted(path.name for path in out.iterdir() if is_sweep(path))


def save_index(out: Path, found: Mapping[str, Comparison]) -> Path:
    """Write the best row of each task with a link to its page, and return the file's path."""
    lines = ["| task | best mean | score | cells that have ended |", "|---|---|---|---|"]
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
