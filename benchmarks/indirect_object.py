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
    *("training.steps=1500", "training.log_every=500"),
]
ROWS, PAIRS = 512, 64


def to_names(weights: Float[Tensor, "b n n"], rows: Rows) -> list[float]:
    """Return the last token's mean attention to the answer, and to the other name, twice."""
    last, labels = weights[:, -1], rows.labels[:, -1]
    is_first = rows.tokens[:, 1] == labels
    answer = torch.where(is_first, last[:, 1], last[:, 2])
    other = torch.where(is_first, last[:, 2], last[:, 1])
    return [float(answer.mean()), float(other.mean()), float(last[:, 3].mean())]


def effects(run: Run, rows: Rows) -> dict[str, tuple[float, float]]:
    """Return the direct and total effect of each head, as shares of the logit difference."""
    first_token = run.tokenizer.encode("0")[0]
    ids = rows.tokens[:PAIRS] - first_token
    swapped = ids.clone()
    swapped[:, 3] = ids[:, 1] + ids[:, 2] - ids[:, 3]
    names = [[str(int(row[3])) for row in one] for one in (swapped, ids)]
    texts = [[" ".join(str(int(x)) for x in row) for row in one] for one in (ids, swapped)]
    metric = edits.logit_difference(right=names[0], wrong=names[1])
    found = regard.paths(run, *texts, metric=metric, senders="heads")
    print(found.table())
    return {}


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
            feedforward = [edits.zero(f"decoder.{i}.feedforward") for i in range(layers)]
            with regard.edited(run, sum(feedforward[1:], start=feedforward[0])):
                _, without = scored(run, rows)
            whole.append([shape, seed, accuracy, without])
            print(whole[-1], flush=True)
            found = effects(run, rows)
            for name in (site.name for site in regard.sites(run) if site.part == "heads"):
                (weights,) = tensors(run, rows, name.replace("heads", "weights"))
                with regard.edited(run, edits.zero(name)):
                    _, accuracy = scored(run, rows)
                by_head.append(
                    [shape, seed, name, *to_names(weights, rows), *found.get(name, ()), accuracy]
                )
                print(by_head[-1], flush=True)


if __name__ == "__main__":
    main()
