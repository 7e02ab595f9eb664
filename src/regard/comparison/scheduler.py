"""Run a comparison: write its cells, train them with an executor, and tabulate the results."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from regard.comparison.config import LocalConfig, RayConfig, SlurmConfig
from regard.comparison.executors import default_jobs, run_locally
from regard.comparison.folder import (
    Cell,
    add_run,
    cell_path,
    create_cell,
    is_sweep,
    join_sweep,
    load_sweep,
    locked,
    plain_values,
    read_cell,
    read_cells,
    remove_cell,
    require_comparison,
    require_equal,
    save_sweep,
)
from regard.comparison.grid import Grid
from regard.comparison.page import summarize
from regard.comparison.plan import PlannedComparison
from regard.comparison.ray_tasks import connect_to_ray, run_on_ray
from regard.comparison.slurm_jobs import require_slurm, run_on_slurm
from regard.comparison.suite import save_index, suite_tasks
from regard.comparison.table import Comparison
from regard.environment import find_device
from regard.errors import UserError
from regard.files import read_table
from regard.runs.code import code_hashes
from regard.training.checkpoint import newest_checkpoint
from regard.training.loggers import read_metrics

Executor = Callable[[Sequence[Path]], Iterator[Path]]
"""A function that trains cells and yields each that has ended."""
LOG = "workers.log"
"""File for the output of worker processes."""


def train_comparison(
    planned: PlannedComparison,
    out: Path,
    *,
    jobs: int | None = None,
    add: Sequence[Path] = (),
) -> Comparison:
    """Train the remaining cells of a comparison, `jobs` at a time, and write its tables.

    Raises:
        UserError: the executor is unavailable, the folder isn't a comparison, another command is
            running on it, or its cells or a run to add differ in more than the axes.
    """
    settings = planned.sweep.cell
    executor = choose_executor(planned.grid, out, jobs)
    with locked(out):
        new = [
            Cell(
                cell_path(out, one.recipe, settings),
                plain_values(one.recipe),
                None,
                code_hashes(one.recipe),
                settings,
            )
            for one in planned.combinations
        ]
        sweep = join_sweep(out, planned.sweep)
        _require_trained_alike(add, settings.precision)
        cells_before = read_cells(out)
        outdated = [cell for cell in cells_before if _is_outdated(cell, new)]
        kept = [cell for cell in cells_before if cell not in outdated]
        require_equal([*kept, *map(_read_added, add)], new, sweep)
        save_sweep(out, sweep)
        for cell in outdated:
            remove_cell(cell.path)
        cells = [create_cell(out, recipe, settings) for recipe in planned.recipes]
        cells += [add_run(out, run, settings) for run in add]
        _train(out, cells, executor)
        return summarize(out)


def add_to_comparison(out: Path, runs: Sequence[Path]) -> Comparison:
    """Add separately trained runs to a comparison: score them, after training is completed.

    Raises:
        UserError: the folder isn't a comparison, or a run differs in more than the axes.
    """
    sweep = load_sweep(out)
    with locked(out):
        _require_trained_alike(runs, sweep.cell.precision)
        require_equal([*read_cells(out), *map(_read_added, runs)], (), sweep)
        cells = [add_run(out, run, sweep.cell) for run in runs]
        _train(out, cells, partial(run_locally, jobs=1, log=out / LOG, device=sweep.cell.device))
        return summarize(out)


def train_suite(
    planned: Sequence[PlannedComparison], out: Path, *, jobs: int | None = None
) -> Iterator[tuple[str, Comparison]]:
    """Train one comparison after another; yield each with its task, and update the index.

    Raises:
        UserError: `out` is a comparison, or a task's folder something else; or as
            `train_comparison`.
    """
    if is_sweep(out):
        raise UserError(f"{out}: is the comparison of a single task; choose another --out")
    for one in planned:
        require_comparison(out / one.grid.task)
    known = suite_tasks(out) if out.is_dir() else []
    found = {task: Comparison.load(out / task) for task in known}
    for one in planned:
        task = one.grid.task
        found[task] = train_comparison(one, out / task, jobs=jobs)
        save_index(out, found)
        yield task, found[task]


def _is_outdated(cell: Cell, planned: Sequence[Cell]) -> bool:
    """Return whether a cell failed with other code or options than those that replace it."""
    if cell.outcome is None or cell.outcome.state != "failed":
        return False
    return any(
        cell.settings != one.settings
        or any(one.code.get(name, digest) != digest for name, digest in cell.code.items())
        for one in planned
    )


def _read_added(run: Path) -> Cell:
    """Read a run to add, without the options that it has as a cell of another comparison."""
    return replace(read_cell(run), settings=None)


def _require_trained_alike(runs: Sequence[Path], precision: str) -> None:
    """Check that runs were trained as cells: from scratch, on generated examples, in `precision`.

    Raises:
        UserError: one began with the weights of another run, or was trained on files or in another
            precision.
    """
    for run in runs:
        origin = read_table(run / "origin.json") if (run / "origin.json").is_file() else {}
        if origin.get("parent") or origin.get("inputs"):
            how = f"from {origin['parent']}" if origin.get("parent") else "on a file"
            raise UserError(
                f"--add {run}: was trained {how}, but cells are trained from scratch on examples "
                "that the task generates; add a run trained without --from and files"
            )
        checkpoint = newest_checkpoint(run)
        trained = checkpoint.environment["precision"] if checkpoint else precision
        if precision not in ("auto", trained):
            raise UserError(
                f"--add {run}: was trained in {trained}, the comparison's cells are in "
                f"{precision}; train it with --precision {precision}, or choose another --out"
            )


def choose_executor(grid: Grid, out: Path, jobs: int | None) -> Executor:
    """Return the executor of a grid, for `jobs` cells at a time.

    Raises:
        UserError: a library is missing, or there is no such device or cluster.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs={jobs}: expected 1 or more")
    threads = grid.cell.threads
    match grid.executor:
        case LocalConfig():
            find_device(grid.cell.device)  # else each cell would fail
            jobs = jobs or default_jobs(threads)
            return partial(run_locally, jobs=jobs, log=out / LOG, device=grid.cell.device)
        case SlurmConfig() as config:
            require_slurm(config)
            return partial(
                run_on_slurm, config=config, folder=out / "jobs", threads=threads, jobs=jobs
            )
        case RayConfig() as config:
            connect_to_ray(config)
            return partial(run_on_ray, config=config, threads=threads, jobs=jobs)


def _train(out: Path, cells: Sequence[Path], executor: Executor) -> None:
    """Train the cells that have neither finished nor diverged, and show the progress."""
    unique = dict.fromkeys(cells)  # an added run may be there already
    waiting = [cell for cell in unique if not read_cell(cell).has_ended]
    if not waiting:
        return
    progress = _Progress(waiting, len(unique), load_sweep(out).axes)
    show = _live if sys.stderr.isatty() else _in_lines
    show(progress, executor(waiting))


# Progress


class _Progress:
    """The cells that are trained, by the values of their axes."""

    def __init__(self, waiting: Sequence[Path], total: int, axes: Sequence[str]) -> None:
        self.running = {cell: _name(read_cell(cell), axes) for cell in waiting}
        self.total = total

    def end(self, path: Path) -> str:
        """Record that a cell has ended; return its number, name and result."""
        name = self.running.pop(path)
        return f"{self.total - len(self.running)}/{self.total} {name}: {_result(read_cell(path))}"

    def table(self) -> Table:
        """Return the cells that have started, with their last metrics."""
        table = Table("cell", "step", "loss", "tokens/s", box=None, pad_edge=False)
        for path, name in list(self.running.items()):
            if records := read_metrics(path / "metrics.jsonl"):
                last = records[-1]
                table.add_row(
                    Text(name),
                    str(last["step"]),
                    f"{last['loss']:.3f}",
                    f"{last['tokens_per_second']:,}",
                )
        table.caption = f"{self.total - len(self.running)} of {self.total} cells have ended"
        return table


def _in_lines(progress: _Progress, ended: Iterator[Path]) -> None:
    for path in ended:
        print(progress.end(path), file=sys.stderr, flush=True)


def _live(progress: _Progress, ended: Iterator[Path]) -> None:
    console = Console(stderr=True)
    with Live(get_renderable=progress.table, console=console, refresh_per_second=1) as live:
        for path in ended:
            live.console.print(progress.end(path), highlight=False, markup=False)


def _name(cell: Cell, axes: Sequence[str]) -> str:
    values = (cell.value(axis) for axis in axes)
    return ", ".join((*(value or "–" for value in values), f"seed {cell.seed}"))


def _result(cell: Cell) -> str:
    outcome = cell.outcome
    if outcome is None:
        return "was claimed by another command"
    if outcome.state != "finished":
        return f"{outcome.state} at step {outcome.step}: {outcome.reason}"
    scores = ", ".join(f"{name} {value:.3f}" for name, value in outcome.test.items())
    seconds = f" in {outcome.costs.seconds:.1f} s" if outcome.costs else ""
    return scores + seconds
