"""regard compare"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.comparison.grid import Grid
    from regard.comparison.plan import PlannedComparison
    from regard.comparison.table import Comparison


@click.command()
@click.argument("source", metavar="[TASK|GRID.toml|FOLDER]", required=False)
@click.argument("settings", nargs=-1)
@click.option("--suite", metavar="NAME", help="Suite of grids, such as probes, in place of TASK.")
@click.option("--over", multiple=True, metavar="FIELD=A,B", help="Axis to compare; repeatable.")
@click.option(
    "--tune",
    multiple=True,
    metavar="FIELD=A,B",
    help="Axis whose best value is chosen by validation; repeatable.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), help="Number of seeds. [5]")
@click.option("--out", type=options.PATH, help="Folder of the comparison.")
@click.option(
    "--recipe",
    type=options.FILLED,
    help="Name of a recipe, or a TOML file. Default: the recipe of TASK.",
)
@click.option(
    "--baseline",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Row that others are compared with. Default: the first.",
)
@click.option("--score", help="Score to compare. Default: the first of the task's.")
@click.option(
    "--within",
    type=click.FloatRange(min=0),
    help="Largest distance of a window's scores from the best. [0.05]",
)
@click.option(
    "--match",
    type=options.Choice(["parameters", "state"]),
    help="Match the cost of all models to the baseline, by changing one size of each.",
)
@click.option(
    "--executor",
    type=options.Choice(["local", "slurm", "ray"]),
    help="Where cells are trained: this machine, SLURM or a Ray cluster. [local]",
)
@click.option(
    "--resource",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the executor, such as mem_gb=8; repeatable.",
)
@click.option(
    "--jobs",
    type=options.COUNT,
    help="Cells at a time. Default: one per core; on a cluster, all.",
)
@click.option("--threads", type=options.COUNT, help="CPU threads of a cell. [1]")
@click.option("--device", help="Device of a cell: auto, cpu, cuda, … [auto]")
@click.option(
    "--precision",
    type=options.Choice(["auto", "float32", "bfloat16"]),
    help="Precision of a cell's matrix products. [float32]",
)
@click.option("--cells", type=options.COUNT, help="Confirm grids of up to so many cells.")
@click.option("--dry-run", is_flag=True, help="Check the grid, time a few steps, train nothing.")
@click.option(
    "--add",
    multiple=True,
    type=options.PATH,
    metavar="RUN",
    help="Separately trained run to add to the comparison; repeatable.",
)
@options.JSON
@options.TRUST_CODE
def compare(
    source: str | None,
    settings: tuple[str, ...],
    suite: str | None,
    out: Path | None,
    jobs: int | None,
    cells: int | None,
    dry_run: bool,
    add: tuple[Path, ...],
    json_file: Path | None,
    trust_code: bool,
    **axes: Any,
) -> None:
    """Train a grid of runs for a task and compare them in a table and on a page.

    TASK is one of `regard tasks`. Repeating a command resumes it: finished cells are kept. FOLDER
    alone, of a comparison or of a suite, shows the results so far. Settings follow as
    section.field=value. --suite trains each task's comparison in a folder named after the task.
    """
    from regard.comparison.suite import suite_tasks, summarize_suite

    options.trust_named(source, axes["recipe"], trust=trust_code)
    given = {name: value for name, value in axes.items() if value not in (None, ())}
    if dry_run and (add or json_file):
        raise UserError("--dry-run: trains nothing, so it has no --add and --json; leave it out")
    if suite is not None:
        if add or json_file:
            raise UserError("--suite: has no --add and --json; give its tasks' folders instead")
        assigned = (source, *settings) if source else settings
        _compare_suite(suite, assigned, given, out=out, jobs=jobs, cells=cells, dry_run=dry_run)
        return
    if source is None:
        raise UserError("there is nothing to compare; name a TASK, a GRID.toml or --suite NAME")
    training = {"out": out, "jobs": jobs, "cells": cells, "dry-run": dry_run or None}
    grid = _grid(source, settings, given, [name for name in training if training[name]])
    if grid is None and (tasks := suite_tasks(Path(source))):
        if add or json_file:
            raise UserError(
                f"{source}: is a suite's folder, which doesn't support --add and --json; give one "
                f"of its tasks' folders, such as {Path(source) / tasks[0]}"
            )
        _print_suite(Path(source), summarize_suite(Path(source)).items())
        return
    if grid is None:
        found = _read(Path(source), add)
    else:
        from regard.comparison.plan import plan_comparison  # takes seconds
        from regard.comparison.scheduler import train_comparison

        planned = plan_comparison(grid, confirmed=cells)
        _print_plan(planned)
        if dry_run:
            _print_estimates(planned)
            return
        if out is None:
            raise UserError("there is no folder for the cells; add --out FOLDER")
        with _stop_explained(out):
            found = train_comparison(planned, out, jobs=jobs, add=add)
    options.write_json(json_file, {"rows": found.table(), "failures": found.failures()})
    _print(found)


def _compare_suite(
    suite: str,
    settings: tuple[str, ...],
    given: dict[str, Any],
    *,
    out: Path | None,
    jobs: int | None,
    cells: int | None,
    dry_run: bool,
) -> None:
    """Check all grids of a suite, then train one after another and print their tables.

    Raises:
        UserError: there is no such suite, or an option is invalid for one of its tasks.
    """
    from regard.comparison.grid import change_grid
    from regard.comparison.plan import plan_comparison
    from regard.comparison.scheduler import train_suite
    from regard.comparison.suite import load_suite

    grids = [change_grid(grid, grid.task, settings, given) for grid in load_suite(suite)]
    planned = [plan_comparison(grid, confirmed=cells) for grid in grids]
    if out is None and not dry_run:
        raise UserError("there is no folder for the cells; add --out FOLDER")
    hours = 0.0
    for one in planned:
        click.echo(f"{one.grid.task}:")
        _print_plan(one)
        if dry_run:
            hours += _print_estimates(one)
    if out is None or dry_run:
        total = sum(len(one.combinations) * one.grid.seeds for one in planned)
        click.echo(f"{suite}: {total:,} cells in {len(planned)} comparisons, {hours:.2f} hours")
        return
    with _stop_explained(out):
        _print_suite(out, train_suite(planned, out, jobs=jobs))


@contextmanager
def _stop_explained(out: Path) -> Iterator[None]:
    """Say after Ctrl-C that a comparison goes on where it stopped."""
    try:
        yield
    except KeyboardInterrupt:
        from regard.training.loop import InterruptedTraining

        raise InterruptedTraining(
            f"stopped; all is saved in {out}. To go on, repeat the command"
        ) from None


def _print_suite(out: Path, found: Iterable[tuple[str, "Comparison"]]) -> None:
    """Print the tables of a suite's tasks, as they come."""
    from regard.comparison.suite import INDEX

    for task, comparison in found:
        click.echo(f"{task}:")
        _print(comparison)
    click.echo(f"Index: {out / INDEX}")


def _grid(
    source: str, settings: tuple[str, ...], given: dict[str, Any], training: list[str]
) -> "Grid | None":
    """Return the grid that the arguments give; None for the folder of a comparison.

    `training` names the other options for training that are given.

    Raises:
        UserError: an option isn't for a folder, or an axis is given twice.
    """
    from regard.comparison.grid import change_grid, read_grid
    from regard.runs.recipes import TASKS

    path = Path(source)
    if path.is_dir() and source not in TASKS:
        if named := [*(f"--{name}" for name in (*given, *training)), *settings]:
            raise UserError(
                f"{source}: is a folder, which is shown as it is; leave {named[0]} out, or name a "
                f"task and --out {source}"
            )
        return None
    base = read_grid(path, (settings, given)) if path.suffix == ".toml" else None
    return change_grid(base, source, settings, given)


def _read(folder: Path, add: tuple[Path, ...]) -> "Comparison":
    """Return the comparison in a folder, after adding runs if given."""
    if add:
        from regard.comparison.scheduler import add_to_comparison

        return add_to_comparison(folder, add)
    from regard.comparison.page import summarize

    return summarize(folder)


def _print_plan(planned: "PlannedComparison") -> None:
    """Print the number of cells, and the combinations that can't be trained."""
    n = len(planned.combinations)
    click.echo(f"cells: {n * planned.grid.seeds:,} ({n} × {planned.grid.seeds} seeds)")
    for one in planned.sweep.refused:
        values = ", ".join(f"{path}={value}" for path, value in one.values.items())
        click.echo(f"refused: {values}: {one.reason}")


def _print_estimates(planned: "PlannedComparison") -> float:
    """Print parameters, operations and hours of each combination; return the hours of all."""
    from rich.table import Table
    from rich.text import Text

    from regard.comparison.plan import estimate

    counted = ("cells", "parameters", "state (bytes)", "FLOPs/row", "hours")
    columns = (*planned.combinations[0].values, *planned.sweep.sizes, *counted)
    table = Table(*columns, box=None, pad_edge=False)
    hours = 0.0
    for one in estimate(planned):
        hours += one.seconds / 3600
        state = "–" if one.state_bytes is None else f"{one.state_bytes:,}"
        counts = (f"{one.cells}", f"{one.parameters:,}", state, f"{one.operations:,}")
        sizes = (one.sizes.get(path, "") for path in planned.sweep.sizes)
        cells = (*one.values.values(), *sizes, *counts, f"{one.seconds / 3600:.3f}")
        table.add_row(*map(Text, cells))  # brackets in a value aren't markup
    options.print_wide(table)
    click.echo(f"hours: {hours:.2f} for one cell at a time, without process startup")
    return hours


def _print_table(found: "Comparison") -> None:
    """Print the table; in a narrow terminal, in parts that repeat the compared axes."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.comparison.export import columns_in_parts, readable

    columns, rows = readable(found)
    console = Console()
    console = console if console.is_terminal else Console(width=250)
    for part in columns_in_parts(columns, rows, found.sweep, console.width):
        table = Table(*(columns[i] for i in part), box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(Text(row[i]) for i in part))
        console.print(table)


def _print(found: "Comparison") -> None:
    from regard.comparison.export import failure_lines, seed_notes
    from regard.comparison.page import PAGE

    _print_table(found)
    for line in [*seed_notes(found), *failure_lines(found)]:
        click.echo(line)
    ended = sum(cell.outcome is not None for cell in found.cells)
    click.echo(f"cells: {ended} of {len(found.cells)} have ended")
    click.echo(f"Page: {found.out / PAGE}")
