"""Number of bits of knowledge stored per parameter."""

from collections.abc import Mapping
from math import ceil, e, log2, prod
from typing import Annotated

from msgspec import Meta

from regard.studies.figure import Line, chart, series
from regard.studies.finding import Measurements, equal
from regard.studies.knowledge.bare_facts import (
    KINDS,
    NAME_TOKENS,
    NAMES,
    draw_facts,
    read_facts,
    token_losses,
)
from regard.studies.study import EvidenceParts, Seed, study

PEOPLE = (1200, 1700, 2400)
FEW = 100
"""Exposures of the shorter training."""
BATCH = 256
MODEL = (
    *("model.n_layers=1", "model.d_model=16"),
    *(f"training.batch={BATCH}", "training.lr=1e-2"),
)


@study(trains=True)
def capacity(
    exposures: Annotated[int, Meta(gt=FEW, le=2000)] = 1000,
    seed: Seed = 0,
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
    (After 100 exposures the bits still rise slowly: to 1.37 per parameter with 4,800 people, at
    seed 0.)

    Figure. Bits per parameter that a model of 13,808 parameters stores about people, against the
    number of people, by number of exposures. Dotted: the published capacities.

    Args:
        exposures: exposures of the longer training
    """
    found = {times: [_bits(people, times, seed) for people in PEOPLE] for times in (FEW, exposures)}
    yield from judged(found)
    yield chart(
        *(series(PEOPLE, ratios, f"{times} exposures") for times, ratios in found.items()),
        Line(y=2, label="published, 1,000 exposures"),
        Line(y=1, label="published, 100 exposures"),
        x="people",
        y="bits per parameter",
        y_limits=(0, 2.4),
    )


def judged(found: Mapping[int, list[float]]) -> Measurements:
    """Yield the measurements of the claim; predictions are the published capacities."""
    few, many = (max(ratios) for ratios in found.values())
    yield equal(f"{FEW} exposures: bits per parameter", few, 1, 0.5)
    yield equal("all exposures: bits per parameter", many, 2, 0.3)


def stored_bits(people: int, name_loss: float, value_loss: float) -> float:
    """Return the number of bits that a model stores about people.

    The losses are the cross-entropies of a person's name and of the values in nats, each summed
    over tokens. Without knowledge they are log N₀ and log S₀; the difference is what the model has
    stored.
    """
    values = prod(map(len, KINDS.values()))
    return people * (log2(len(NAMES)) + log2(values) - (name_loss + value_loss) * log2(e))


def _bits(people: int, exposures: int, seed: int) -> float:
    """Return the bits per parameter of a model trained on some people."""
    documents = draw_facts(people, tuple(KINDS), seed)
    run = read_facts(documents, ceil(exposures * people / BATCH), seed, *MODEL)
    losses = token_losses(run, [run.tokenizer.encode(text) for text in documents]).mean(0)
    name, values = losses[:NAME_TOKENS].sum(), losses[NAME_TOKENS:][: len(KINDS)].sum()
    return stored_bits(people, float(name), float(values)) / run.n_parameters
