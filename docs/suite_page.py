"""Write the docs' page of a suite that has been trained. `make suite`.

    python docs/suite_page.py SUITE FOLDER

Writes docs/SUITE.md, a figure for each task, and the tables' numbers as
docs/figures/suite-SUITE.json.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.comparison.export import failure_lines, markdown_table, readable
from regard.comparison.grid import Grid
from regard.comparison.suite import load_suite, suite_tasks, summarize_suite
from regard.comparison.table import Comparison
from regard.drawing import to_png
from regard.errors import UserError
from regard.files import write_file
from regard.runs.recipes import TASKS

DOCS = Path(__file__).parent
TITLES = {
    "families": "Families of models, compared",
    "hybrids": "Layers of different kinds, compared",
    "lengths": "Rows longer than those of training, compared",
    "mechanisms": "Mechanisms, compared",
    "recall": "Recall with newer kinds of attention, compared",
    "recurrences": "Gated linear recurrences, compared",
    "world": "Ways to learn a world, compared",
}
"""Titles of pages; others have the suite's name."""
NOTES = {
    "mechanisms": "These are ten decoder mechanisms without gates. Recurrences with gates are on "
    "the page on [gated linear recurrences](recurrences.md).",
    "recurrences": "Parity is trained on rows of 40 bits; the test scores positions 41 to 256. "
    "In `mqar`, rows with equal `short_conv` have states of equal size. Without a short "
    "convolution (0), a layer can't combine a token with its predecessor. All cells ran on an AMD "
    "EPYC (Zen 5), 2026-11-30. Means between 0.6 and 0.9 change with seed and processor: an "
    "earlier run had 0.93 for `gated-deltanet`, 0.78 for `gated-deltanet-2` and 0.73 for "
    "`kimi-delta`. Over five seeds, `kimi-delta` has a mean of 0.81, and 0.95 with slower initial "
    "decays "
    "([attention](attention.md#gated-linear-recurrences)).",
}
"""Remarks on a suite, below the introduction."""
UNTIMED = ("recurrences",)
"""Suites trained beside other programs, so that their seconds are no measurement."""
LEFT_OUT = ("FLOPs/row", "tokens/s", "memory (MB)")
"""Columns of `regard compare` that a page leaves out."""
INTRO = """# {title}

```
make suite SUITE={suite}
```

The suite `{suite}` of [`regard compare`](compare.md#suites): {cells:,} cells, {time}, one CPU
thread per cell. Scores are means over {seeds} seeds with 95 % intervals.
Tuned values are chosen by validation; *window* lists those whose mean validation score is within
{within} of the best. Not ranked are rows that the seeds can't tell from the baseline, and those
whose best value is at the edge of the grid; the points of the latter are hollow.
[Statistics](compare.md#statistics)."""
SOLVED = 0.99
"""Mean test score from which a task counts as solved."""


def main(suite: str, folder: Path, docs: Path = DOCS) -> None:
    """Write the page.

    Raises:
        UserError: there is no such suite, or not all cells of the folder have ended.
    """
    grids = {grid.task: grid for grid in load_suite(suite)}
    if not folder.is_dir() or set(suite_tasks(folder)) != grids.keys():
        raise UserError(
            f"{folder}: doesn't hold all comparisons of {suite}; first run regard compare "
            f"--suite {suite} --out {folder}"
        )
    summarized = summarize_suite(folder)
    found = {task: summarized[task] for task in grids}
    require_complete(found)
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    for task, comparison in found.items():
        write_file(docs / figure_name(suite, task), to_png(comparison.figure()))
    numbers = json.dumps({task: one.table() for task, one in found.items()}, indent=1)
    write_file(docs / "figures" / f"suite-{suite}.json", f"{numbers}\n".encode())
    write_file(docs / f"{suite}.md", page(suite, grids, found).encode())


def require_complete(found: Mapping[str, Comparison]) -> None:
    """Raise unless all cells have ended.

    Raises:
        UserError: names the comparison whose cells wait.
    """
    for comparison in found.values():
        waiting = sum(cell.outcome is None for cell in comparison.cells)
        if waiting or not comparison.cells:
            raise UserError(f"{comparison.out}: {waiting} cells have not ended; repeat its command")


def page(suite: str, grids: Mapping[str, Grid], found: Mapping[str, Comparison]) -> str:
    """Return the page as Markdown: a section for each task."""
    hours = sum(map(seconds, found.values())) / 3600
    intro = INTRO.format(
        title=TITLES.get(suite, suite),
        suite=suite,
        cells=sum(len(comparison.cells) for comparison in found.values()),
        time="not timed" if suite in UNTIMED else f"{hours:.1f} hours of training in all",
        seeds=max(grid.seeds for grid in grids.values()),
        within=max(grid.within for grid in grids.values()),
    )
    lines = [intro, *(["", NOTES[suite]] if suite in NOTES else [])]
    for task, comparison in found.items():
        lines += ["", *section(suite, grids[task], comparison)]
    lines += ["", f"*From `suite-{suite}.json`, written by the command above.*"]
    return "\n".join(lines) + "\n"


def section(suite: str, grid: Grid, comparison: Comparison) -> list[str]:
    """Return the lines about a task: description, rows that solve it, figure, table, failures."""
    settings = ", ".join(f"`{setting}`" for setting in grid.settings)
    failures = [f"- {line}" for line in failure_lines(comparison)]
    return [
        f"## {grid.task}",
        "",
        f"{first_line(grid.task)} {'Settings: ' + settings + '.' if settings else ''}".rstrip(),
        "",
        f"Test {comparison.score} of at least {SOLVED}: {solved(comparison) or 'none'}.",
        "",
        f"![Test {comparison.score} of each row, and validation {comparison.score} by tuned value]"
        f"({figure_name(suite, grid.task)})",
        "",
        *markdown_table(*narrow(suite, *readable(comparison))),
        *(["", *failures] if failures else []),
    ]


def figure_name(suite: str, task: str) -> str:
    """Return the path of a task's figure, below docs/."""
    return f"figures/{suite}-{task}.png"


def first_line(task: str) -> str:
    """Return the first line of a task's description."""
    return (type(TASKS[task].task).__doc__ or "").strip().splitlines()[0]


def solved(comparison: Comparison) -> str:
    """Return the names of the rows whose mean test score is high."""
    return "; ".join(
        row.name
        for row, record in zip(comparison.rows, comparison.table(), strict=True)
        if (record["test"] or 0) >= SOLVED
    )


def narrow(
    suite: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns that are left out."""
    left_out = (*LEFT_OUT, "seconds") if suite in UNTIMED else LEFT_OUT
    kept = [place for place, name in enumerate(columns) if name not in left_out]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def seconds(comparison: Comparison) -> float:
    """Return the seconds that all cells were trained."""
    outcomes: list[Any] = [cell.outcome for cell in comparison.cells]
    return sum(one.costs.seconds for one in outcomes if one and one.costs)


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
    except UserError as error:
        sys.exit(f"suite_page: {error}")
    except IndexError:
        sys.exit(f"suite_page: name a suite and its folder: {sys.argv[0]} SUITE FOLDER")
