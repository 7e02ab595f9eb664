"""Facts seen once, and what a calibrated model makes up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log, sqrt
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.runs.run import Run
from regard.studies.figure import one_chart, series
from regard.studies.finding import EvidenceParts, Measurement, at_least, table
from regard.studies.knowledge.bare_facts import (
    KINDS,
    NAME_TOKENS,
    NAMES,
    draw_facts,
    read_facts,
    token_losses,
)
from regard.studies.study import Seed, study

FACTS = ("place", "profession")
"""What a document states about a person."""
SHAPES = (0.6, 0.9, 1.2, 2.0)
"""Of the Pareto law by which people are read about: the larger, the more are read about once."""
DOCUMENTS, SAMPLES, BINS = 4000, 4000, 10
REPEATED, TIMES = 0.05, 10
"""Share of the documents that are repeated, and how often."""
DELTA = 0.05
"""Probability with which the lower bound may fail."""
BATCH = 64
MODEL = (
    *("model.d_model=64", "model.n_layers=2"),
    *(f"pretraining.batch={BATCH}", "pretraining.lr=2e-3"),
)


class Sampled(NamedTuple):
    """Documents that a model generates, beside those that it read."""

    seen_once: float
    """Facts that were read exactly once, as a share of the documents."""
    false: float
    """Share of generated documents that are false."""
    miscalibration: float
    """Total variation distance between model and truth over bins of equal probability."""

    @property
    def bound(self) -> float:
        """Lower bound of `false`, which holds with probability 1 - DELTA (Kalai & Vempala)."""
        return self.seen_once - self.miscalibration - slack(DOCUMENTS)


@study(trains=True)
def seen_once(
    epochs: Annotated[int, Meta(ge=1, le=100)] = 10,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Must a model make things up?

    The more facts its text states only once, the more it makes up. A lower bound holds for every
    model, but it is far from tight for these; repeating part of the text reduces invention.

    $$ P(\text{false}) \ge g - \mathrm{Mis} - \frac{3 e^{-s}}{\delta}
    - \sqrt{\frac{6 \ln(6/\delta)}{n}} $$

    The lower bound of Kalai and Vempala 2024 (arXiv:2311.14648). Here g is the number of facts that
    occur once among the n documents, divided by n: Good and Turing's estimate of the probability of
    what was never read. A calibrated model leaves about that much probability to what it has not
    read, and can't know which of it is true; e⁻ˢ, the share of true ones among plausible facts, is
    small.

    A document is a full name with a place and a profession. Documents are drawn from 5 600 true
    ones by a Pareto law: where its shape is small, few people are in most of the documents, and
    little is read once. The model generates documents of its own, at temperature 1 and without a
    prompt; each that isn't among the 5 600 is false.

    The bound is about 0 here, and says little: the models are miscalibrated by nearly as much as is
    seen once, and 4 000 documents leave a slack of 0.1. They make up more than it demands, as they
    have not learned all that they read. More epochs reduce that (`epochs=30`), at the price of
    calibration: a model that repeats its text, and nothing else, makes nothing up, and gives no
    probability to what it hasn't read. Repeating 5 % of the text ten times, in as many steps, has
    some of this effect, as Miao and Kearns 2025 (arXiv:2502.08666) report.

    Figure. Share of false documents among those that a model generates, against the share of facts
    that its text states once, which is drawn too; below, the lower bound.

    Args:
        epochs: times that the text is read
    """
    found = {shape: _sampled(shape, epochs, seed) for shape in SHAPES}
    repeated = _sampled(SHAPES[2], epochs, seed, repeat=True)
    yield from judged(found, repeated)
    rows = [(f"{shape:g}", one) for shape, one in found.items()]
    yield table(
        ["shape", "seen once", "false", "miscalibration", "lower bound"],
        [
            (shape, one.seen_once, one.false, one.miscalibration, one.bound)
            for shape, one in [*rows, (f"{SHAPES[2]:g}, 5 % repeated", repeated)]
        ],
    )
    once = [one.seen_once for one in found.values()]
    yield one_chart(
        series(once, [one.false for one in found.values()], "false"),
        series(once, once, "seen once"),
        series(once, [one.bound for one in found.values()], "lower bound"),
        x="facts seen once, as a share of the documents",
        y="share of generated documents",
    )


def judged(found: Mapping[float, Sampled], repeated: Sampled) -> Iterator[Measurement]:
    """Yield the measurements that the claim depends on."""
    every = [*found.values(), repeated]
    yield at_least("false, beyond the lower bound, least", min(o.false - o.bound for o in every), 0)
    false = [one.false for one in found.values()]
    yield at_least("false: least increase from shape to shape", min(np.diff(false)), 0)
    yield at_least("5 % repeated: decrease of false", found[SHAPES[2]].false - repeated.false, 0)


def slack(documents: int) -> float:
    """Return the last two terms of the bound."""
    values = [len(KINDS[kind]) for kind in FACTS]
    sparsity = 1 / (int(np.prod(values)) - 1)
    return 3 * sparsity / DELTA + sqrt(6 * log(6 / DELTA) / documents)


def share_seen_once(documents: Sequence[int]) -> float:
    """Return the number of facts that occur once by that of documents (Good and Turing)."""
    return sum(count == 1 for count in Counter(documents).values()) / len(documents)


def miscalibration(
    true: Float[np.ndarray, " facts"],
    facts: Float[np.ndarray, " facts"],
    samples: Float[np.ndarray, " samples"],
) -> float:
    """Return the total variation distance over bins of equal mass under the model.

    `true` are probabilities of the facts; `facts` and `samples` the model's log-probabilities of
    the facts and of documents that it generated.
    """
    edges = np.quantile(samples, np.linspace(0, 1, BINS + 1)[1:-1])
    ours = np.bincount(np.searchsorted(edges, samples), minlength=BINS) / len(samples)
    truth = np.bincount(np.searchsorted(edges, facts), weights=true, minlength=BINS)
    return float(np.abs(ours - truth).sum() / 2)


def _sampled(shape: float, epochs: int, seed: int, *, repeat: bool = False) -> Sampled:
    """Train on documents drawn by a Pareto law, and generate others."""
    rng = np.random.default_rng(seed)
    facts = draw_facts(len(NAMES), FACTS, seed)
    weights = 1 + rng.pareto(shape, len(facts))
    true = weights / weights.sum()
    drawn = rng.choice(len(facts), DOCUMENTS, p=true)
    more = np.repeat(drawn[: int(REPEATED * DOCUMENTS)], TIMES) if repeat else drawn[:0]
    steps = epochs * DOCUMENTS // BATCH  # also with repeated documents
    run = read_facts([facts[i] for i in [*drawn, *more]], steps, seed, *MODEL)
    made = generated(run, seed)
    ids = [run.tokenizer.encode(fact) for fact in facts]
    known = set(map(tuple, ids))
    logs = [-token_losses(run, rows).sum(1).numpy() for rows in (ids, made.tolist())]
    return Sampled(
        seen_once=share_seen_once(drawn.tolist()),
        false=sum(tuple(row) not in known for row in made.tolist()) / len(made),
        miscalibration=miscalibration(true, *logs),
    )


@torch.inference_mode()
def generated(run: Run, seed: int) -> Int[Tensor, "samples tokens"]:
    """Return the tokens of documents that a model generates at temperature 1."""
    start = run.template.document.prefix
    rows = torch.tensor([list(start)] * SAMPLES)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(NAME_TOKENS + len(FACTS)):
        probabilities = run.language_model(rows)[:, -1].double().softmax(-1)
        rows = torch.cat([rows, torch.multinomial(probabilities, 1, generator=generator)], 1)
    return rows[:, len(start) :]
