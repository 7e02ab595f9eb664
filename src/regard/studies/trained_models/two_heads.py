"""A task for which one head isn't sufficient and two are."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from regard.config import override
from regard.data import IGNORE
from regard.explorer.look import look
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart
from regard.studies.finding import Measurements, Outside, at_least, at_most, named
from regard.studies.model_cache import cached_run
from regard.studies.number_rows import Numbers, accuracy, plan_numbers, tokens_of
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import share_error
from regard.training.plan import Plan

LENGTH, TRAINING, TEST = 12, 20_000, 500
"""Number of tokens per row, and numbers of rows."""


@study(trains=True)
def two_heads(
    k: Annotated[int, Meta(ge=3, le=12)] = 8,
    steps: Annotated[int, Meta(ge=1, le=2000)] = 400,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What can two heads do that one can't?

    With argmax attention and k tokens, one head can name both of two tokens in at most 2/k of the
    cases; two heads learn to name both in nearly all.

    $$ P(\text{right}) \le \frac{2k}{k^2} = \frac{2}{k} \text{ for one head} $$

    At each place of a row of random tokens, one layer has to name the two tokens before it, in
    order: k² possible answers. One head of argmax attention gives the layers above a place and the
    token there, at most 2k cases, and in each case they have to choose one of k answers. (One might
    expect 1/k. But a head that attends to, say, the larger of two tokens also gives information
    about the other one.) Two heads have half the width, with the same number of weights in all.

    Figure. Accuracy by mechanism and number of heads. Dotted: the bound 2/k on one head of argmax
    attention.

    Args:
        k: number of different tokens
        steps: training steps
    """
    runs = {
        (kind, heads): cached_run(plan_rows(kind, heads, k, steps, seed))
        for kind in ("argmax", "softmax")
        for heads in (1, 2)
    }
    rows, shown = rows_of(k, TEST, seed + 1), runs["softmax", 2]
    shares = {which: _right(run, rows) for which, run in runs.items()}
    text = shown.tokenizer.decode(tokens_of(shown, rows[0])[0].tolist())
    asked = TEST * (LENGTH - 2)
    yield from judged("argmax", shares, k, asked)
    yield Outside("attention takes one value: argmax", judged("softmax", shares, k, asked))
    yield bar_chart(
        {
            label: {kind: shares[kind, heads] for kind in ("argmax", "softmax")}
            for heads, label in ((1, "one head"), (2, "two heads"))
        },
        Line(y=2 / k, label="$2 / k$"),
        y="accuracy",
        y_limits=(0, 1.05),
    )
    yield look(named(shown, "two heads of softmax"), text).data


def judged(kind: str, shares: Mapping[tuple[str, int], float], k: int, n: int) -> Measurements:
    """Yield the measurements of n answers by a mechanism; shares are by mechanism and heads."""
    yield at_most(f"accuracy, {kind}, one head", shares[kind, 1], most_of_one(k, n))
    yield at_least(f"accuracy, {kind}, two heads", shares[kind, 2], 0.9)


def most_of_one(k: int, n: int) -> float:
    """Return 2/k plus three standard errors of n answers."""
    return 2 / k + 3 * share_error(2 / k, n)


def rows_of(k: int, n: int, seed: int) -> tuple[Numbers, Numbers]:
    """Return rows of tokens 0..k−1; labels from the third place on are the index of the pair
    before."""
    ids = np.random.default_rng([seed, n]).integers(k, size=(n, LENGTH))
    labels = np.full_like(ids, IGNORE)
    labels[:, 2:] = ids[:, 1:-1] * k + ids[:, :-2]
    return ids, labels


def plan_rows(kind: str, heads: int, k: int, steps: int, seed: int) -> Plan:
    """Return the plan to train one layer."""
    settings = [
        *("model.context_length=16", "model.n_layers=1", "model.d_model=32"),
        *(f"model.n_heads={heads}", f"model.attention.kind={kind}"),
        *("model.positions.kind=learned", "data.validation=0", "tokenizer.kind=words"),
        *("template.document={document}{eos}", "template.prompt={question}"),
        *(f"training.steps={steps}", "training.optimizer.kind=muon", "training.lr=1e-2"),
        f"seed={seed}",
    ]
    recipe = override(RECIPES["default"], settings)
    return plan_numbers(recipe, {"stage": "two-heads", "k": k}, k * k, *rows_of(k, TRAINING, seed))


@torch.inference_mode()
def _right(run: Run, rows: tuple[Numbers, Numbers]) -> float:
    """Return the accuracy on rows."""
    ids, labels = (torch.from_numpy(tokens_of(run, numbers)) for numbers in rows)
    return accuracy(run.language_model(ids), labels)
