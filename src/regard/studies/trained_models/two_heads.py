"""What one head cannot do and two can."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Int
from msgspec import Meta

from regard.config import override
from regard.data import IGNORE
from regard.explorer.look import look
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.figure import Chart, Figure, Line, bars
from regard.studies.finding import Evidence, Measurement, at_least, at_most, named, table
from regard.studies.model_cache import cached_run
from regard.studies.study import Seed, study
from regard.text.tokenizer import number_tokenizer
from regard.training.plan import Plan
from regard.training.plan_task import plan_labeled_rows

LENGTH, TRAINING, TEST = 12, 20_000, 500
"""Tokens of a row, and rows."""
Rows = Int[np.ndarray, "rows length"]


@study(
    question="What can two heads do that one can't?",
    claim="With argmax attention, one head can name both of two tokens, out of k, in at most 2/k "
    "of the cases; two heads learn to name both in nearly all.",
    formula=r"P(\text{right}) \le \frac{2k}{k^2} = \frac{2}{k} \text{ for one head}",
    trains=True,
)
def two_heads(
    k: Annotated[int, Meta(ge=3, le=12, description="different tokens")] = 8,
    steps: Annotated[int, Meta(ge=1, le=2000, description="steps of training")] = 400,
    seed: Seed = 0,
) -> Evidence:
    """At each place of a row of random tokens, one layer has to name the two tokens before it, both
    and in their order: k² answers. By argmax attention a head takes the value of one place. So one
    head gives the layers above a place and the token there, 2k cases at most, and for each case
    they have to choose one of k answers: 2k of k² can be right. This is counting, and no training
    changes it. (One might expect 1/k. But a head that attends to the larger of two tokens, say,
    says something about the other one too, and training finds such solutions.) Two heads of half
    the width, with as many weights in all, attend to one token each.

    Softmax isn't bound by this. A single head can give the two places different weights, and the
    layers above can separate the parts by their size. So the claim holds under a condition, and the
    measurements outside it are those of softmax. `noisy-keys-one-head` shows what such a mixture
    costs when keys are noisy.
    """
    shares = {
        (kind, heads): _accuracy(kind, heads, k, steps, seed)
        for kind in ("argmax", "softmax")
        for heads in (1, 2)
    }
    return Evidence(
        condition="attention takes one value: argmax",
        numbers=judged_argmax(shares, k, TEST * (LENGTH - 2)),
        outside_condition=judged_softmax(shares, k, TEST * (LENGTH - 2)),
        figure=_figure(shares, k),
        table=table(
            ["attention", "heads", "right answers"],
            [(kind, heads, share) for (kind, heads), share in shares.items()],
        ),
        explorer_view=_explorer_view(k, steps, seed),
    )


Shares = Mapping[tuple[str, int], float]
"""Right answers by mechanism and number of heads."""


def judged_argmax(shares: Shares, k: int, n: int) -> tuple[Measurement, ...]:
    """Return the measurements of n answers that the claim depends on."""
    return (
        at_most("argmax, one head", shares["argmax", 1], most_of_one(k, n)),
        at_least("argmax, two heads", shares["argmax", 2], 0.9),
    )


def judged_softmax(shares: Shares, k: int, n: int) -> tuple[Measurement, ...]:
    """Return the same for heads that average."""
    return (
        at_most("softmax, one head", shares["softmax", 1], most_of_one(k, n)),
        at_least("softmax, two heads", shares["softmax", 2], 0.9),
    )


def most_of_one(k: int, n: int) -> float:
    """Return 2/k plus three standard errors of n answers."""
    share = 2 / k
    return share + 3 * math.sqrt(share * (1 - share) / n)


def rows_of(k: int, n: int, seed: int) -> tuple[Rows, Rows]:
    """Return rows of tokens 0..k-1, and from the third place on the number of the two before."""
    ids = np.random.default_rng([seed, n]).integers(k, size=(n, LENGTH))
    labels = np.full_like(ids, IGNORE)
    labels[:, 2:] = ids[:, 1:-1] * k + ids[:, :-2]
    return ids, labels


def plan_rows(kind: str, heads: int, k: int, steps: int, seed: int) -> Plan:
    """Return the plan to train one layer."""
    recipe = _recipe(kind, heads, steps, seed)
    run = Run.new(Path("unused"), recipe, number_tokenizer(k * k), {"stage": "two-heads", "k": k})
    ids, labels = (x.astype(np.int64) for x in shifted(*rows_of(k, TRAINING, seed), run))
    return plan_labeled_rows(run, ids, labels, "two heads")


def shifted(ids: Rows, labels: Rows, run: Run) -> tuple[Rows, Rows]:
    """Return numbers as ids of their tokens."""
    (first,) = run.tokenizer.encode("0")
    return ids + first, np.where(labels == IGNORE, IGNORE, labels + first)


def _recipe(kind: str, heads: int, steps: int, seed: int) -> Recipe:
    return override(
        RECIPES["default"],
        [
            *(
                "model.context_length=16",
                "model.n_layers=1",
                "model.d_model=32",
                f"model.n_heads={heads}",
            ),
            *(f"model.attention.kind={kind}", "model.positions.kind=learned"),
            *("data.validation=0", "tokenizer.kind=words"),
            *("template.document={document}{eos}", "template.prompt={question}"),
            *(f"training.steps={steps}", "training.optimizer.kind=muon", "training.lr=1e-2"),
            f"seed={seed}",
        ],
    )


def _accuracy(kind: str, heads: int, k: int, steps: int, seed: int) -> float:
    run = cached_run(plan_rows(kind, heads, k, steps, seed))
    ids, labels = (torch.from_numpy(x) for x in shifted(*rows_of(k, TEST, seed + 1), run))
    with torch.inference_mode():
        hits = run.language_model(ids).argmax(-1) == labels
    return float(hits[labels != IGNORE].double().mean())


def _explorer_view(k: int, steps: int, seed: int) -> dict[str, Any]:
    """The two heads of softmax, on a row."""
    run = cached_run(plan_rows("softmax", 2, k, steps, seed))
    ids, _ = shifted(*rows_of(k, TEST, seed + 1), run)
    return look(named(run, "two heads of softmax"), run.tokenizer.decode(ids[0].tolist())).data


def _figure(shares: Shares, k: int) -> Figure:
    chart = Chart(
        bars=[
            bars([shares[kind, heads] for kind in ("argmax", "softmax")], label)
            for heads, label in ((1, "one head"), (2, "two heads"))
        ],
        names=["argmax", "softmax"],
        lines=[Line(y=2 / k, label="2/k")],
        y="right answers",
        y_limits=(0, 1.05),
    )
    return Figure(
        panels=[chart],
        caption="Share of right answers by mechanism and number of heads. Dotted: the bound 2/k on "
        "one head of argmax attention.",
    )
