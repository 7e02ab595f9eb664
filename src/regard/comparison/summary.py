"""Tables and page of a comparison's current results. Doesn't import torch, which takes seconds."""

from collections.abc import Mapping
from pathlib import Path

from regard.comparison.export import interval, save_tables
from regard.comparison.folder import is_sweep
from regard.comparison.page import save_page
from regard.comparison.table import Comparison
from regard.files import write_file

INDEX = "index.md"
"""File in a suite's folder that links the pages of its tasks."""


def summarize(out: Path) -> Comparison:
    """Write tables and page of the current results.

    Raises:
        UserError: the folder isn't a comparison.
    """
    comparison = Comparison.load(out)
    save_tables(comparison)
    save_page(comparison)
    return comparison


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
