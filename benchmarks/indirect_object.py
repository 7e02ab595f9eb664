"""Indirect objects: which heads find the name that isn't repeated.

    python benchmarks/indirect_object.py [--seeds 3]

Trains decoders on `indirect-object` (Adhikari, 2025, arXiv:2510.25013) whose feed-forward layers
have one hidden unit, the least that a layer has. Of each head, prints the attention of the last
token to the names, direct and total effect on the logit difference, and accuracy with the head at
zero. Texts of a pair differ in the repeated name. Trained runs are cached.
"""

import argparse

import torch
from jaxtyping import Float
from probe_runs import Rows, new_rows, print_table, scored, tensors, trained
from torch import Tensor

import regard
from regard import edits
from regard.runs.run import Run

SHAPES = {"1 layer, 1 head": (1, 1), "1 layer, 2 heads": (1, 2), "2 layers, 1 head": (2, 1)}
SETTINGS = [
    *("model.d_model=32", "model.d_ff=1", "model.context_length=8", "model.positions.kind=learned"),
    *("task.vocabulary=10", "training.steps=1500"),
]
ROWS, PAIRS = 512, 64
AGAIN = 3
"""Position of the repeated name; the two names are before it."""


def to_names(weights: Float[Tensor, "b n n"], rows: Rows) -> list[float]:
    """Return the last token's mean attention to the answer, and to the other name, twice."""
    last, labels = weights[:, -1], rows.labels[:, -1]
    is_first = rows.tokens[:, 1] == labels
    answer = torch.where(is_first, last[:, 1], last[:, 2])
    other = torch.where(is_first, last[:, 2], last[:, 1])
    return [float(answer.mean()), float(other.mean()), float(last[:, AGAIN].mean())]


def effects(run: Run, rows: Rows) -> dict[str, tuple[float, float]]:
    """Return the direct and total effect of each head, as shares of the logit difference."""
    ids = (rows.tokens - run.tokenizer.encode("0")[0])[:PAIRS]
    swapped = ids.clone()
    swapped[:, AGAIN] = ids[:, 1] + ids[:, 2] - ids[:, AGAIN]
    clean, corrupt = ([" ".join(map(str, row)) for row in one.tolist()] for one in (ids, swapped))
    metric = edits.logit_difference(
        right=[str(int(name)) for name in swapped[:, AGAIN]],
        wrong=[str(int(name)) for name in ids[:, AGAIN]],
    )
    found = regard.paths(run, clean, corrupt, metric=metric, senders="heads").rows()
    return {row["site"]: (row["direct"], row["total"]) for row in found}


def main() -> None:
    """Train, measure, edit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    whole, by_head = list[list[object]](), list[list[object]]()
    for shape, (layers, heads) in SHAPES.items():
        for seed in range(options.seeds):
            settings = [*SETTINGS, f"model.n_layers={layers}", f"model.n_heads={heads}"]
            run = trained("indirect-object", [*settings, f"seed={seed}"])
            rows = new_rows(run, ROWS)
            _, accuracy = scored(run, rows)
            feedforward = (edits.zero(f"decoder.{i}.feedforward") for i in range(layers))
            with regard.edited(run, edits.Edits(tuple(feedforward))):
                _, without = scored(run, rows)
            whole.append([shape, seed, accuracy, without])
            found = effects(run, rows)
            for name in (site.name for site in regard.sites(run) if site.part == "heads"):
                (weights,) = tensors(run, rows, name.replace("heads", "weights"))
                with regard.edited(run, edits.zero(name)):
                    _, accuracy = scored(run, rows)
                by_head.append(
                    [shape, seed, name, *to_names(weights, rows), *found[name], accuracy]
                )
    print_table(["model", "seed", "accuracy", "without feed-forward layers"], whole)
    print()
    print_table(
        [
            *("model", "seed", "head", "to the answer", "to the other, first"),
            *("to the other, again", "direct effect", "total effect", "accuracy, head at zero"),
        ],
        by_head,
    )


if __name__ == "__main__":
    main()
