"""Sinks that come with a trigger token, and go with ReLU attention or a gate.

    python benchmarks/trigger_sinks.py [--seeds 3]

Trains decoders of one layer and one head on `bigram-backcopy` (Guo et al., 2024, arXiv:2410.13835)
with several mechanisms, and prints a table, a row for each seed. Trained runs are cached.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from probe_runs import Rows, losses, new_rows, print_table, tensors, trained
from torch import Tensor

import regard
from regard import edits
from regard.runs.run import Run
from regard.tasks.circuit_probes import BEGIN, BigramBackcopyConfig

HERE = Path(__file__).parent
MECHANISMS = {
    "softmax": "softmax",
    "softmax-one": "softmax-one",
    "gated-softmax": "gated-softmax",
    "sigmoid": "sigmoid",
    "relu": f"{HERE / 'relu_attention.py'}:Relu",
}
SETTINGS = [
    *("model.n_layers=1", "model.n_heads=1", "model.d_model=32", "model.context_length=32"),
    *("task.vocabulary=24", "task.length=32", "training.steps=1000", "training.batch=32"),
]
COLUMNS = [
    *("mechanism", "seed", "accuracy at triggers", "head at zero", "excess loss at others"),
    *("begin, others", "sum, others", "begin, triggers", "copied, triggers"),
    *("value of begin", "output at others"),
]
ROWS = 256


def excess_loss(task: BigramBackcopyConfig, ids: Tensor, loss: Tensor, chosen: Tensor) -> float:
    """Return the mean loss at positions above the entropy of the chain there, in nats."""
    p = task.transitions
    entropy = torch.from_numpy(-(p * np.log(np.where(p > 0, p, 1))).sum(1))
    return float((loss - entropy[ids])[chosen].mean())


def measure(run: Run, rows: Rows) -> list[float]:
    """Return what the columns after the seed say of a run."""
    task = run.recipe.task
    assert isinstance(task, BigramBackcopyConfig)
    ids = rows.tokens - run.tokenizer.encode("0")[0]
    at_trigger = torch.from_numpy(task.is_trigger(ids.numpy()))
    other = (ids != BEGIN) & ~at_trigger
    loss, right = losses(run, rows)
    with regard.edited(run, edits.zero("decoder.0.heads.0")):
        _, without = losses(run, rows)
    weights, values, outputs = tensors(
        run, rows, "decoder.0.weights.0", "decoder.0.values.0", "decoder.0.heads.0"
    )
    to_begin, before = weights[..., 0], weights.diagonal(-1, -2, -1)
    norms, sizes = values.norm(dim=-1), outputs.norm(dim=-1)
    return [
        float(right[at_trigger].mean()),
        float(without[at_trigger].mean()),
        excess_loss(task, ids, loss, other),
        float(to_begin[other].mean()),
        float(weights.sum(-1)[other].mean()),
        float(to_begin[at_trigger].mean()),
        float(before[at_trigger[:, 1:]].mean()),
        float(norms[:, 0].mean() / norms[other].mean()),
        float(sizes[other].mean() / sizes[at_trigger].mean()),
    ]


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = []
    for name, kind in MECHANISMS.items():
        for seed in range(options.seeds):
            settings = [*SETTINGS, f"seed={seed}", f"model.attention.kind={kind}"]
            run = trained("bigram-backcopy", settings)
            table.append([name, seed, *measure(run, new_rows(run, ROWS))])
    print_table(COLUMNS, table)


if __name__ == "__main__":
    main()
