"""Heads that a translation model can lose.

    python benchmarks/prune_translation.py [--seeds 3]

Trains encoder–decoders on `translation`, orders their heads by importance (Michel et al., 2019,
arXiv:1905.10650), by ablation and by learned gates (after Voita et al., 2019, arXiv:1905.09418) on
training sentences, as `regard prune` does, and at random. The models without the first heads of
each order are scored on held-out sentences. Trained runs are cached.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from probe_runs import print_table, trained

import regard
from regard import edits
from regard.edits.head_importance import group_layers
from regard.evaluation.tasks import TaskScore
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.tasks.translation import TranslationConfig
from regard.training.pruning import MEASURES, Unit, order_units

SETTINGS = [
    *(
        f"model.{side}.{size}"
        for side in ("encoder", "decoder")
        for size in ("d_model=64", "n_layers=2")
    ),
    *("training.steps=700", "training.batch=48"),
]
SENTENCES = 200
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.4)
ORDERS = 3
"""Random orders of a model's heads."""


def score(run: Run, units: Sequence[Unit], share: float, rows: Sequence[Example]) -> list[float]:
    """Return exact match and BLEU with a share of the heads, the last units of an order."""
    removed = units[: len(units) - round(share * len(units))]
    zeros = [edits.zero(f"{place}.heads.{head}") for one in removed for place, head in one.groups]
    found = regard.evaluate(run, rows, edit=edits.Edits(tuple(zeros)))
    assert isinstance(found, TaskScore)
    return [found.scores[name].value for name in ("exact match", "BLEU")]


def random_order(run: Run, seed: int) -> list[Unit]:
    """Return all units in a random order, the last one of each layer at the end."""
    draw = torch.Generator().manual_seed(seed)
    layers = group_layers(run.model).items()
    return order_units({place: torch.rand(one.groups, generator=draw) for place, one in layers})


def pruning_order(run: Run, rows: Sequence[Example], by: str) -> tuple[Unit, ...]:
    """Return all units in the order in which `regard prune --by BY` removes them."""
    with tempfile.TemporaryDirectory() as folder:
        return regard.prune(run, rows, out=Path(folder) / "run", by=by, keep=SHARES[-1]).units


def main() -> None:
    """Train, order, prune and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = list[list[object]]()
    for seed in range(options.seeds):
        run = trained("translation", [*SETTINGS, f"seed={seed}"])
        assert isinstance(run.recipe.task, TranslationConfig)
        split = run.recipe.task.make(seed)
        chosen, held_out = split.training[:SENTENCES], split.test[:SENTENCES]
        orders = {by: pruning_order(run, chosen, by) for by in MEASURES}
        orders |= {f"random {i}": tuple(random_order(run, i)) for i in range(ORDERS)}
        for name, units in orders.items():
            scores = [score(run, units, share, held_out) for share in SHARES]
            table += [[seed, name, "exact match", *(exact for exact, _ in scores)]]
            table += [[seed, name, "BLEU", *(bleu for _, bleu in scores)]]
    print_table(["seed", "order", "score", *(f"{share:.0%} of heads" for share in SHARES)], table)


if __name__ == "__main__":
    main()
