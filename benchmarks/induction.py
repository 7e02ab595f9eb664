"""Induction heads: when they form, and what a model is without them.

    python benchmarks/induction.py [--seeds 3] [--figure FILE]

Trains decoders of one and two layers, without short convolutions, on `repeated`, and measures them
at checkpoints: the loss from the second copy on, and the scores of heads on segments of random ids
that occur twice. Then each head is set to zero, and the faithfulness of circuits of two layers is
measured. Prints three tables, with rows for each seed, and draws loss and score by step. Trained
runs are cached.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from probe_runs import Rows, checkpoints, new_rows, print_table, scored, tensors

import regard
from regard import edits
from regard.drawing import COLORS, panels, to_png
from regard.edits.faithfulness import Faithfulness
from regard.explorer.head_scores import at_distance, repeated
from regard.files import write_file
from regard.runs.run import Run
from regard.tasks.circuit_probes import RepeatedConfig

SETTINGS = [
    *("model.n_heads=2", "model.d_model=32", "model.context_length=40"),
    *("task.vocabulary=32", "task.length=40", "task.shortest=4", "task.longest=20"),
    *("training.steps=600", "training.checkpoint_every=20"),
]
TWICE = RepeatedConfig(vocabulary=32, length=40, shortest=20, longest=20)
"""Rows of one segment, twice, on which heads are scored."""
DEPTHS = (1, 2)
ROWS = 128
PAIRS, SEGMENT, SEEN = 128, 16, 8
"""Pairs of texts: a segment of ids that all differ, and the first of them again."""


class Point(NamedTuple):
    """A model at a checkpoint: loss in nats, and the highest score of a head."""

    step: int
    loss: float
    accuracy: float
    induction: float
    previous: float


def heads_of(run: Run) -> list[str]:
    """Return the names of all heads."""
    return [site.name for site in regard.sites(run) if site.part == "heads"]


def head_scores(run: Run, twice: Rows) -> dict[str, tuple[float, float]]:
    """Return the induction score and the previous-token score of each head, over all rows."""
    heads = heads_of(run)
    weights = tensors(run, twice, *(name.replace("heads", "weights") for name in heads))
    return {
        name: (float(repeated(of)["induction"].mean()), float(at_distance(of, -1).mean()))
        for name, of in zip(heads, weights, strict=True)
    }


def point(step: int, run: Run) -> Point:
    """Measure a model at a checkpoint."""
    scores = head_scores(run, new_rows(run, ROWS, TWICE)).values()
    induction, previous = (max(column) for column in zip(*scores, strict=True))
    return Point(step, *scored(run, new_rows(run, ROWS)), induction, previous)


def half_way(points: Sequence[Point], of: str) -> int:
    """Return the first step at which a measure is half way from its first value to its last."""
    values = [getattr(one, of) for one in points]
    half = abs(values[0] - values[-1]) / 2
    near = (abs(value - values[-1]) <= half for value in values)
    return next(one.step for one, is_near in zip(points, near, strict=True) if is_near)


def ablated(run: Run) -> list[list[object]]:
    """Return scores of each head, and the model's loss and accuracy with the head at zero."""
    rows, table = new_rows(run, ROWS), list[list[object]]()
    for name, scores in head_scores(run, new_rows(run, ROWS, TWICE)).items():
        with regard.edited(run, edits.zero(name)):
            table.append([name, *scores, *scored(run, rows)])
    return table


def faithful(run: Run) -> Faithfulness:
    """Measure circuits of heads; in corrupt texts, the first copy of the last id is another one."""
    rng = np.random.default_rng(run.recipe.seed)
    ids = np.stack([rng.permutation(TWICE.vocabulary) for _ in range(PAIRS)])
    rows = np.concatenate([ids[:, :SEGMENT], ids[:, :SEEN]], 1)
    without = rows.copy()
    without[:, SEEN - 1] = ids[:, SEGMENT]
    clean, corrupt = ([" ".join(map(str, row)) for row in texts] for texts in (rows, without))
    right, wrong = (list(map(str, ids[:, place])) for place in (SEEN, SEGMENT))
    metric = edits.logit_difference(right, wrong)
    return regard.faithfulness(run, clean, corrupt, metric=metric)


def draw(curves: dict[int, list[list[Point]]]) -> bytes:
    """Draw loss and induction score by step, a panel for each depth and a line for each seed."""
    with panels(len(curves), height=2.8, width=8) as (figure, axes):
        for one, (depth, runs) in zip(axes, curves.items(), strict=True):
            other = one.twinx()
            for points in runs:
                steps = [point.step for point in points]
                one.plot(steps, [point.loss for point in points], color=COLORS[0])
                other.plot(steps, [point.induction for point in points], color=COLORS[1])
            one.set(xlabel="step", title=f"{depth} layer{'s' * (depth > 1)}", ylim=(0, None))
            one.set_ylabel("loss (nats)", color=COLORS[0])
            other.set_ylabel("highest induction score", color=COLORS[1])
            other.set_ylim(0, 1)
        return to_png(figure)


def main() -> None:
    """Train, measure, edit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    curves: dict[int, list[list[Point]]] = {depth: [] for depth in DEPTHS}
    when, without = list[list[object]](), list[list[object]]()
    circuits = list[list[object]]()
    for depth in DEPTHS:
        for seed in range(options.seeds):
            settings = [*SETTINGS, f"model.n_layers={depth}", f"seed={seed}"]
            runs = checkpoints("repeated", settings)
            points = [point(step, run) for step, run in runs.items()]
            curves[depth].append(points)
            halves = [half_way(points, of) for of in ("loss", "induction", "previous")]
            when.append([depth, seed, *points[-1][1:], *halves])
            last = runs[points[-1].step]
            without += [[depth, seed, *row] for row in ablated(last)]
            if depth == DEPTHS[-1]:
                found = faithful(last)
                areas = str(found.cpr), str(found.cmd)
                circuits += [[seed, *row.values(), *areas] for row in found.by_size.rows()]
    print_table(
        [*("layers", "seed", "loss", "accuracy", "induction", "previous token")]
        + [f"half-way step: {of}" for of in ("loss", "induction", "previous token")],
        when,
    )
    print()
    print_table(
        [*("layers", "seed", "head at zero", "induction", "previous token", "loss", "accuracy")],
        without,
    )
    print()
    print_table(
        [
            *("seed", "heads", "share", "the last of them", "faithfulness", "low", "high"),
            *("CPR", "CMD"),
        ],
        circuits,
    )
    if options.figure:
        write_file(options.figure, draw(curves))


if __name__ == "__main__":
    main()
