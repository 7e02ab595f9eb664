"""Models of bare facts: the bits that they store, and the false documents that they generate.

A document is a full name and one word per fact. Short documents are cheap, so that models can read
thousands of people a thousand times.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil, e, log, log2, prod, sqrt
from random import Random
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.config import override
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.figure import Line, chart, series
from regard.studies.finding import Measurements, at_least, equal
from regard.studies.knowledge.fictional import CPU, trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks import names
from regard.tasks.rng import choice, shuffled
from regard.training.sources.documents import DocumentSource
from regard.uncertainty.signals import score_tokens

KINDS = names.FACTS
"""Values of each kind of fact; all are equally likely."""
NAMES = tuple(" ".join(name) for name in product(names.FIRST_NAMES, names.LAST_NAMES))
"""All full names."""
NAME_TOKENS = 2

_SETTINGS = (
    *("model.context_length=8", "data.validation=0", "objective.questions=0"),
    *("objective.clozes=0", "objective.cloze_relevance=0", "objective.next_token=1"),
    "training.checkpoint_every=100000",
)
PEOPLE = (1200, 1700, 2400)
"""Numbers of people of which the capacity is the maximum."""
FEW = 100
"""Exposures of the shorter training."""
FACTS = ("place", "profession")
"""Facts that a document of generating models states about a person."""
SHAPES = (0.6, 0.9, 1.2, 2.0)
"""Shapes of the Pareto law of documents per person: the larger, the more facts occur once."""
DOCUMENTS, SAMPLES, BINS = 4000, 4000, 10
REPEATED, TIMES = 0.05, 10
"""Share of the documents that are repeated, and number of repetitions."""
DELTA = 0.05
"""Probability with which the lower bound may fail."""
SEEN_ONCE, FALSE, BOUND = "seen once", "false", "lower bound"
Sampled = Mapping[str, float]
"""Facts seen once, divided by documents; share of generated documents that are false; its bound."""


def draw_facts(people: int, kinds: Sequence[str], seed: int) -> list[str]:
    """Return a document for each of `people` random people with random facts."""
    draw = Random(seed)
    chosen = shuffled(draw, NAMES)[:people]
    return [" ".join([name, *(choice(draw, KINDS[kind]) for kind in kinds)]) for name in chosen]


def read_facts(documents: Sequence[str], steps: int, seed: int, *settings: str) -> Run:
    """Return a model trained on the documents; its vocabulary has all names and values."""
    recipe = override(
        RECIPES["demo"], [*_SETTINGS, f"training.steps={steps}", f"seed={seed}", *settings]
    )
    words = [" ".join(values) for values in (NAMES, *KINDS.values())]
    return trained(DocumentSource(documents, index=False), recipe, words)


def token_losses(run: Run, rows: Sequence[Sequence[int]]) -> Float[Tensor, "rows tokens"]:
    """Return the cross-entropy in nats of each token, and of the end, of equally long rows."""
    document = run.template.document
    texts = [[*row, *document.suffix] for row in rows]
    scored = score_tokens(run, [document.prefix] * len(rows), texts, CPU)
    return -torch.stack([one.log_probabilities for one in scored]).double()


@study(trains=True)
def capacity(
    exposures: Annotated[int, Meta(gt=FEW, le=2000)] = 1000, seed: Seed = 0
) -> EvidenceParts:
    r"""How many facts fit into a model?

    About two bits per parameter if the model reads each fact a thousand times, and somewhat more
    than one bit after a hundred times.

    $$ R = N \log_2 \frac{N_0}{e^{p_1}} + N \log_2 \frac{S_0}{e^{p_2}} $$

    The measure is that of Allen-Zhu and Li 2024 (arXiv:2404.05405), who find about 2 bits per
    parameter after 1,000 exposures and 1 bit after 100. N people are drawn from N₀ names, with
    facts of S₀ possible combinations; p₁ and p₂ are the cross-entropies of the name and of the
    facts in nats, summed over their tokens.

    A document is a name of two words and four words for facts, 20.6 bits. The model has one layer
    of width 16, with 13,808 parameters. The capacity is the maximum over the number of people.

    Figure. Bits per parameter that a model of 13,808 parameters stores about people, against the
    number of people, by number of exposures. Dotted: the published capacities.

    Args:
        exposures: exposures of the longer training
    """
    found = {times: [_bits(people, times, seed) for people in PEOPLE] for times in (FEW, exposures)}
    yield from judged_bits(found)
    yield chart(
        *(series(PEOPLE, ratios, f"{times} exposures") for times, ratios in found.items()),
        Line(y=2, label="published, 1,000 exposures"),
        Line(y=1, label="published, 100 exposures"),
        x="people",
        y="bits per parameter",
        y_limits=(0, 2.4),
    )


def judged_bits(found: Mapping[int, list[float]]) -> Measurements:
    """Yield the measurements of the claim; predictions are the published capacities."""
    few, many = (max(ratios) for ratios in found.values())
    yield equal(f"{FEW} exposures: bits per parameter", few, 1, 0.5)
    yield equal("all exposures: bits per parameter", many, 2, 0.3)


def stored_bits(people: int, loss: float) -> float:
    """Return the number of bits that a model stores about people.

    The loss is the cross-entropy of a person's name and values in nats, summed over tokens.
    """
    documents = len(NAMES) * prod(map(len, KINDS.values()))
    return people * (log2(documents) - loss * log2(e))


def _bits(people: int, exposures: int, seed: int) -> float:
    """Return the bits per parameter of a model trained on some people."""
    documents = draw_facts(people, tuple(KINDS), seed)
    settings = ("model.n_layers=1", "model.d_model=16", "training.batch=256", "training.lr=1e-2")
    run = read_facts(documents, ceil(exposures * people / 256), seed, *settings)
    losses = token_losses(run, [run.tokenizer.encode(text) for text in documents]).mean(0)
    return stored_bits(people, float(losses[: NAME_TOKENS + len(KINDS)].sum())) / run.n_parameters


@study(trains=True)
def seen_once(epochs: Annotated[int, Meta(ge=1, le=100)] = 10, seed: Seed = 0) -> EvidenceParts:
    r"""Must a model make things up?

    The more facts a text states only once, the more false statements the model generates. A lower
    bound holds for every model with probability at least 1 − δ, but it is far from tight for these;
    repeating part of the text reduces false statements.

    $$ P(\text{false}) \ge g - \mathrm{Mis} - \frac{3 e^{-s}}{\delta} - \sqrt{\frac{6
    \ln(6/\delta)}{n}} $$

    This is the lower bound of Kalai and Vempala 2024 (arXiv:2311.14648). g is the number of facts
    that occur once among the n documents, divided by n; Mis is the miscalibration: documents are
    sorted by their probability under the model into ten bins, each with a tenth of the model's
    documents, and the total variation distance of model and truth over these bins is taken. e⁻ˢ is
    the number of true facts per plausible false one, and δ is 0.05. A document is a full name with
    a place and a profession, drawn from 5,600 true ones by a Pareto law. The model generates
    documents at temperature 1 without a prompt; each one that isn't among the 5,600 is false.

    Here the bound is below 0 (seed 0). Repeating 5 % of the text ten times, in the same number of
    steps, reduces false documents, as Miao and Kearns 2025 (arXiv:2502.08666) report.

    Figure. Share of false documents among generated ones, against g, the number of facts that occur
    once, divided by that of documents. g itself and the lower bound are drawn too.

    Args:
        epochs: number of epochs
    """
    found = {shape: measured_samples(shape, epochs, seed) for shape in SHAPES}
    repeated = measured_samples(SHAPES[2], epochs, seed, repeat=True)
    yield from judged_samples(found, repeated)
    curves = {name: [one[name] for one in found.values()] for name in (FALSE, SEEN_ONCE, BOUND)}
    yield chart(
        *(series(curves[SEEN_ONCE], curve, name) for name, curve in curves.items()),
        x="facts seen once, as a share of the documents",
        y="share of generated documents",
    )


def judged_samples(found: Mapping[float, Sampled], repeated: Sampled) -> Measurements:
    """Yield the measurements that the claim depends on."""
    least = min(one[FALSE] - one[BOUND] for one in [*found.values(), repeated])
    yield at_least("false minus lower bound, least", least, 0)
    false = [one[FALSE] for one in found.values()]
    yield at_least("false: least increase from shape to shape", min(np.diff(false)), 0)
    decrease = found[SHAPES[2]][FALSE] - repeated[FALSE]
    yield at_least("false, without minus with 5 % repeated", decrease, 0)


def share_seen_once(documents: Sequence[int]) -> float:
    """Return the number of facts that occur once over that of documents (Good and Turing)."""
    return sum(count == 1 for count in Counter(documents).values()) / len(documents)


def miscalibration(
    true: Float[np.ndarray, " facts"],
    facts: Float[np.ndarray, " facts"],
    samples: Float[np.ndarray, " samples"],
) -> float:
    """Return the total variation distance over bins of equal mass under the model.

    `true` are the probabilities of the facts; `facts` and `samples` are the model's
    log-probabilities of the facts and of its generated documents.
    """
    edges = np.quantile(samples, np.linspace(0, 1, BINS + 1)[1:-1])
    ours = np.bincount(np.searchsorted(edges, samples), minlength=BINS) / len(samples)
    truth = np.bincount(np.searchsorted(edges, facts), weights=true, minlength=BINS)
    return float(np.abs(ours - truth).sum() / 2)


def measured_samples(shape: float, epochs: int, seed: int, *, repeat: bool = False) -> Sampled:
    """Train on documents drawn by a Pareto law, generate others, and measure both."""
    rng = np.random.default_rng(seed)
    facts = draw_facts(len(NAMES), FACTS, seed)
    weights = 1 + rng.pareto(shape, len(facts))
    true = weights / weights.sum()
    drawn = rng.choice(len(facts), DOCUMENTS, p=true)
    more = np.repeat(drawn[: int(REPEATED * DOCUMENTS)], TIMES) if repeat else drawn[:0]
    steps = epochs * DOCUMENTS // 64  # also with repeated documents
    settings = ("model.n_layers=2", "model.d_model=64", "training.batch=64", "training.lr=2e-3")
    run = read_facts([facts[i] for i in [*drawn, *more]], steps, seed, *settings)
    made = generated(run, seed)
    ids = [run.tokenizer.encode(fact) for fact in facts]
    known = set(map(tuple, ids))
    logs = [-token_losses(run, rows).sum(1).numpy() for rows in (ids, made.tolist())]
    return with_bound(
        share_seen_once(drawn.tolist()),
        sum(tuple(row) not in known for row in made.tolist()) / len(made),
        miscalibration(true, *logs),
    )


def with_bound(seen_once: float, false: float, off: float) -> Sampled:
    """Return the values with their bound; `off` is the miscalibration."""
    plausible = prod(len(KINDS[kind]) for kind in FACTS)
    last_two = 3 / (plausible - 1) / DELTA + sqrt(6 * log(6 / DELTA) / DOCUMENTS)
    return {SEEN_ONCE: seen_once, FALSE: false, BOUND: seen_once - off - last_two}


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
