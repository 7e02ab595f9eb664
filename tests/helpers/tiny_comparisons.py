"""The smallest comparisons: cells of a few steps, and cells that were never trained."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import tomli_w

from regard.comparison.cell import run_cell
from regard.comparison.folder import (
    Cell,
    Costs,
    Outcome,
    Sweep,
    plain_values,
    save_sweep,
    value_at,
)
from regard.comparison.grid import Grid
from regard.comparison.table import Comparison
from regard.runs.recipes import TASKS

KIND, LR = "model.attention.kind", "training.lr"
TINY = (
    "task.vocabulary=16",
    "task.length=16",
    "task.pairs=2",
    "model.context_length=16",
    "model.n_layers=1",
    "model.d_model=16",
    "training.steps=4",
    "training.batch=4",
    "training.log_every=1",
    "training.checkpoint_every=2",
)
"""Settings of a cell that trains in milliseconds."""


def tiny_grid(**changes: object) -> Grid:
    """Two mechanisms, two learning rates, two seeds."""
    usual = {
        "task": "mqar",
        "settings": TINY,
        "over": {KIND: ["softmax", "elu"]},
        "tune": {LR: [0.001, 0.01]},
        "seeds": 2,
    }
    return msgspec.convert(usual | changes, Grid)


def run_here(cells: Sequence[Path], **_options: object) -> Iterator[Path]:
    """Train cells in this process."""
    for cell in cells:
        run_cell(cell)
        yield cell


COSTS = Costs(
    parameters=100,
    operations=2000,
    state_bytes=64,
    seconds=1.5,
    tokens_per_second=1000.0,
    peak_memory_mb=50.0,
)


def finished(validation: float, test: float) -> Outcome:
    """A cell with these scores."""
    scores = {"accuracy": validation}, {"accuracy": test}
    return Outcome(
        state="finished", attempt=1, step=4, validation=scores[0], test=scores[1], costs=COSTS
    )


DIVERGED = Outcome(state="diverged", attempt=1, step=3, reason="step 3: loss nan")


def made_up(
    outcomes: Mapping[tuple[str, float, int], Outcome | None],
    out: Path = Path("sweep"),
    **sweep: object,
) -> Comparison:
    """A comparison with an outcome for each (kind, learning rate, seed)."""
    cells = [
        Cell(
            out / "cells" / f"{number:04}",
            {"seed": seed, "model": {"attention": {"kind": kind}}, "training": {"lr": lr}},
            outcome,
        )
        for number, ((kind, lr, seed), outcome) in enumerate(outcomes.items())
    ]
    over, tune = (
        {path: tuple(dict.fromkeys(value_at(cell.recipe, path) for cell in cells))}
        for path in (KIND, LR)
    )
    return Comparison(out, msgspec.convert({"over": over, "tune": tune} | sweep, Sweep), cells)


def write_cells(comparison: Comparison) -> None:
    """Write a comparison with whole recipes into its folder."""
    save_sweep(comparison.out, comparison.sweep)
    recipe = plain_values(TASKS["mqar"])
    for cell in comparison.cells:
        cell.path.mkdir(parents=True, exist_ok=True)
        recipe["seed"] = cell.seed
        recipe["training"]["lr"] = float(cell.value(LR))
        recipe["model"]["attention"]["kind"] = cell.value(KIND)
        (cell.path / "config.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
        (cell.path / "outcome.json").write_bytes(msgspec.json.encode(cell.outcome))


def with_metrics(comparison: Comparison, *, steps: int) -> None:
    """Write a metrics.jsonl for each cell; the loss of a step is (1 + seed) / step."""
    for cell in comparison.cells:
        cell.path.mkdir(parents=True)
        records = [
            {"step": n, "loss": (1 + cell.seed) / n, "tokens_per_second": 1000, "seconds": n / 10}
            for n in range(1, steps + 1)
        ]
        (cell.path / "metrics.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(records))
