"""S26: what one head cannot do and two can."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Int
from msgspec import Meta

from regard.evaluation.drawing import COLOURS, INK, panels
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.runs.toml import override
from regard.studies.finding import (
    Drawing,
    Evidence,
    Number,
    at_least,
    at_most,
    drawing,
    equal,
    table,
)
from regard.studies.study import study
from regard.studies.trained import trained
from regard.text.objectives import IGNORE
from regard.text.tokenizer import numbers
from regard.training import sources
from regard.training.stages import Plan, plan

LENGTH, TRAINING, TEST = 12, 20_000, 500
"""Tokens of a row, and rows."""
Rows = Int[np.ndarray, "rows length"]


@study(
    rows=["S26"],
    asked=["002 §1 d", "001 §2 d"],
    question="What can two heads do that one can't?",
    claim="With argmax attention, one head finds one of two tokens and guesses the other, and is "
    "right once in k; two heads find both.",
    formula=r"P(\text{right}) \le \frac{1}{k} \text{ for one head}",
    trains=True,
)
def two_heads(
    k: Annotated[int, Meta(ge=2, le=10, description="different tokens")] = 6,
    steps: Annotated[int, Meta(ge=1, le=2000, description="steps of training")] = 400,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of rows and weights")] = 0,
) -> Evidence:
    """At each place of a row of random tokens, one layer has to name the two tokens before it, both
    and in their order: k² answers. By argmax attention a head takes the value of one place. With
    one head, only one of the two tokens is known, whatever the weights are: so at most one answer
    in k is right. That is a matter of counting, and no training changes it. Two heads of half the
    width, and as many weights in all, look at one token each.

    Softmax isn't bound by this. A single head can give two places different weights, and whoever
    reads the average can tell from the size of each part which was which. So with softmax the claim
    depends on what keeps weights apart: it needs a condition, and the last number measures how one
    head does. What such a mixture costs when keys are noisy, the course shows in 001 §2 c.
    """
    shares = {
        (kind, heads): _accuracy(kind, heads, k, steps, seed)
        for kind in ("argmax", "softmax")
        for heads in (1, 2)
    }
    return Evidence(
        condition="attention takes one value: argmax",
        numbers=judged_argmax(shares, k, TEST * (LENGTH - 2)),
        beyond=judged_softmax(shares, k, TEST * (LENGTH - 2)),
        figure=_drawn(shares, k),
        table=table(
            ["attention", "heads", "right answers"],
            [(kind, heads, share) for (kind, heads), share in shares.items()],
        ),
    )


Shares = Mapping[tuple[str, int], float]
"""Right answers by mechanism and number of heads."""


def judged_argmax(shares: Shares, k: int, n: int) -> tuple[Number, ...]:
    """What the claim wants of n answers."""
    return (
        equal("argmax, one head", shares["argmax", 1], 1 / k, within=_three_errors(k, n) + 0.02),
        at_least("argmax, two heads", shares["argmax", 2], 0.9),
    )


def judged_softmax(shares: Shares, k: int, n: int) -> tuple[Number, ...]:
    """The same where heads take averages."""
    return (
        at_most("softmax, one head", shares["softmax", 1], 1 / k + _three_errors(k, n)),
        at_least("softmax, two heads", shares["softmax", 2], 0.9),
    )


def _three_errors(k: int, n: int) -> float:
    return 3 * math.sqrt((k - 1) / n) / k


def rows_of(k: int, n: int, seed: int) -> tuple[Rows, Rows]:
    """Rows of tokens 0..k-1, and at each place from the third the number of the two before it."""
    ids = np.random.default_rng([seed, n]).integers(k, size=(n, LENGTH))
    labels = np.full_like(ids, IGNORE)
    labels[:, 2:] = ids[:, 1:-1] * k + ids[:, :-2]
    return ids, labels


def plan_rows(kind: str, heads: int, k: int, steps: int, seed: int) -> Plan:
    """The training of one layer."""
    recipe = _recipe(kind, heads, steps, seed)
    run = Run.new(Path("unused"), recipe, numbers(k * k), {"stage": "two-heads", "k": k})
    ids, labels = (x.astype(np.int64) for x in shifted(*rows_of(k, TRAINING, seed), run))
    rows = list(zip(ids, labels, strict=True))
    return plan(run, [sources.given(rows)], [], recipe.training, "two heads")


def shifted(ids: Rows, labels: Rows, run: Run) -> tuple[Rows, Rows]:
    """Numbers as ids of their tokens."""
    (first,) = run.tokenizer.encode("0")
    return ids + first, np.where(labels == IGNORE, IGNORE, labels + first)


def _recipe(kind: str, heads: int, steps: int, seed: int) -> Recipe:
    return override(
        RECIPES["plain"],
        [
            *("model.block=16", "model.n_layers=1", "model.d_model=32", f"model.n_heads={heads}"),
            *(f"model.attention.kind={kind}", "model.positions.kind=relative-bias"),
            *("data.begin_mark=false", "data.validation=0", "tokenizer.kind=words"),
            *(f"training.steps={steps}", "training.optimizer.kind=muon", "training.lr=3e-3"),
            f"seed={seed}",
        ],
    )


def _accuracy(kind: str, heads: int, k: int, steps: int, seed: int) -> float:
    run = trained(plan_rows(kind, heads, k, steps, seed))
    ids, labels = (torch.from_numpy(x) for x in shifted(*rows_of(k, TEST, seed + 1), run))
    with torch.inference_mode():
        hits = run.language_model(ids).argmax(-1) == labels
    return float(hits[labels != IGNORE].double().mean())


def _drawn(shares: Shares, k: int) -> Drawing:
    names = [f"{kind},\n{heads} head{'s' * (heads > 1)}" for kind, heads in shares]
    with panels(height=2.6) as (figure, (axes,)):
        colours = [COLOURS[heads - 1] for _, heads in shares]
        axes.bar(names, list(shares.values()), width=0.5, color=colours)
        axes.axhline(1 / k, linestyle=":", color=INK, linewidth=1)
        axes.set(ylabel="right answers", ylim=(0, 1.05))
        shown = ", ".join(f"{kind} {heads}: {share:.0%}" for (kind, heads), share in shares.items())
        return drawing(
            figure,
            f"Bars of the share of right answers by mechanism and number of heads: {shown}. "
            f"Dotted: one in {k}.",
            name="two-heads",
        )
