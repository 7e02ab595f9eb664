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
from regard.drawing import COLORS, INK, panels
from regard.explorer.look import look
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    named,
    table,
)
from regard.studies.model_cache import cached_run
from regard.studies.study import study
from regard.text.tokenizer import number_tokenizer
from regard.training.plan import Plan
from regard.training.plan_task import plan_labeled_rows

LENGTH, TRAINING, TEST = 12, 20_000, 500
"""Tokens of a row, and rows."""
Rows = Int[np.ndarray, "rows length"]


@study(
    asked=["eecs182-transformers d", "practical-4 2.d"],
    question="What can two heads do that one can't?",
    claim="With argmax attention, one head names two of k tokens at most twice in k times; "
    "two heads always can.",
    formula=r"P(\text{right}) \le \frac{2k}{k^2} = \frac{2}{k} \text{ for one head}",
    trains=True,
)
def two_heads(
    k: Annotated[int, Meta(ge=3, le=12, description="different tokens")] = 8,
    steps: Annotated[int, Meta(ge=1, le=2000, description="steps of training")] = 400,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of rows and weights")] = 0,
) -> Evidence:
    """At each place of a row of random tokens, one layer has to name the two tokens before it, both
    and in their order: k² answers. By argmax attention a head takes the value of one place. So one
    head tells the layers above a place and the token there, 2k cases at most, and of the k answers
    that go with each case they have to choose one: 2k of k² can be right. That is a matter of
    counting, and no training changes it. (One might expect 1/k. But by looking at the larger of two
    tokens, say, a head tells something about the other one too, and training finds such tricks.)
    Two heads of half the width, and as many weights in all, look at one token each.

    Softmax isn't bound by this. A single head can give the two places different weights, and the
    layers above tell from the size of each part which was which. So the claim holds under a
    condition, and the numbers beyond it show what one head of softmax does. What such a mixture
    costs when keys are noisy, the course shows too.
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
        figure=_drawn(shares, k),
        table=table(
            ["attention", "heads", "right answers"],
            [(kind, heads, share) for (kind, heads), share in shares.items()],
        ),
        explorer_view=_explorer_view(k, steps, seed),
    )


Shares = Mapping[tuple[str, int], float]
"""Right answers by mechanism and number of heads."""


def judged_argmax(shares: Shares, k: int, n: int) -> tuple[Measurement, ...]:
    """What the claim wants of n answers."""
    return (
        at_most("argmax, one head", shares["argmax", 1], most_of_one(k, n)),
        at_least("argmax, two heads", shares["argmax", 2], 0.9),
    )


def judged_softmax(shares: Shares, k: int, n: int) -> tuple[Measurement, ...]:
    """The same where heads take averages."""
    return (
        at_most("softmax, one head", shares["softmax", 1], most_of_one(k, n)),
        at_least("softmax, two heads", shares["softmax", 2], 0.9),
    )


def most_of_one(k: int, n: int) -> float:
    """2/k, and three standard errors of n answers."""
    share = 2 / k
    return share + 3 * math.sqrt(share * (1 - share) / n)


def rows_of(k: int, n: int, seed: int) -> tuple[Rows, Rows]:
    """Rows of tokens 0..k-1, and at each place from the third the number of the two before it."""
    ids = np.random.default_rng([seed, n]).integers(k, size=(n, LENGTH))
    labels = np.full_like(ids, IGNORE)
    labels[:, 2:] = ids[:, 1:-1] * k + ids[:, :-2]
    return ids, labels


def plan_rows(kind: str, heads: int, k: int, steps: int, seed: int) -> Plan:
    """The training of one layer."""
    recipe = _recipe(kind, heads, steps, seed)
    run = Run.new(Path("unused"), recipe, number_tokenizer(k * k), {"stage": "two-heads", "k": k})
    ids, labels = (x.astype(np.int64) for x in shifted(*rows_of(k, TRAINING, seed), run))
    return plan_labeled_rows(run, ids, labels, "two heads")


def shifted(ids: Rows, labels: Rows, run: Run) -> tuple[Rows, Rows]:
    """Numbers as ids of their tokens."""
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


def _drawn(shares: Shares, k: int) -> Drawing:
    names = [f"{kind},\n{heads} head{'s' * (heads > 1)}" for kind, heads in shares]
    with panels(height=2.6) as (figure, (axes,)):
        colors = [COLORS[heads - 1] for _, heads in shares]
        axes.bar(names, list(shares.values()), width=0.5, color=colors)
        axes.axhline(2 / k, linestyle=":", color=INK, linewidth=1)
        axes.set(ylabel="right answers", ylim=(0, 1.05))
        shown = ", ".join(f"{kind} {heads}: {share:.0%}" for (kind, heads), share in shares.items())
        return drawing(
            figure,
            f"Bars of the share of right answers by mechanism and number of heads: {shown}. "
            f"Dotted: two in {k}.",
            name="two-heads",
        )
