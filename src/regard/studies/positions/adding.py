"""Positions added to words, or concatenated with them."""

import math
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.positions import Sinusoidal
from regard.studies.costs import exponent
from regard.studies.figure import Chart, chart, series
from regard.studies.finding import at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest

LENGTH = 512
"""Number of positions from which those of a pair are drawn."""
PAIRS = 2000
WIDTHS = (16, 32, 64, 128, 256, 512)
MATRICES = 16
"""Number of draws of W_q and W_k."""


Pairs: TypeAlias = Float[Tensor, "4 pairs d"]
"""Words and positions of queries, then of keys: x₁, p₁, x₂, p₂."""


@study()
def adding(
    d: Annotated[int, Meta(ge=2, le=1024, multiple_of=2)] = 256,
    sigma: Annotated[float, Meta(ge=0.1, le=2)] = 1.0,
    steps: Annotated[int, Meta(ge=1, le=256)] = 1,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Are positions added to words, or concatenated with them?

    Adding gives the score two cross terms of word and position, which concatenation doesn't have.
    Relative to x·x of a word with itself they fall as 1/√d, here below a tenth; relative to x₁·x₂
    of two different words they don't fall. With a general W_qᵀW_k, both have cross terms.

    $$ (x_1 + p_1)^\top (x_2 + p_2) = x_1^\top x_2 + x_1^\top p_2 + p_1^\top x_2 + p_1^\top p_2,
    \quad [x_1, p_1]^\top [x_2, p_2] = x_1^\top x_2 + p_1^\top p_2 $$

    Words are drawn as x ~ N(0, σ²I), like embeddings before training, and positions p are sinusoids
    of length √(d/2). Scores are recovered from attention weights. With random W_q and W_k, root
    mean squares of the terms are compared.

    Figure. Size of the terms against the width. The product of a word with itself and that of close
    positions grow as d. The cross terms grow as √d, like the product of two different words. Lines
    and dashes: formulas. Dots: measured.

    Args:
        d: width
        sigma: standard deviation of a word's entries
        steps: distance of the two positions
    """
    draw = torch.Generator().manual_seed(seed)
    few = draw_pairs(8, d, sigma, steps, draw)
    pairs = draw_pairs(PAIRS, d, sigma, steps, draw)
    drawn = {width: draw_pairs(PAIRS, width, sigma, steps, draw) for width in WIDTHS}
    sizes = {width: float(cross_terms(each).std()) for width, each in drawn.items()}
    general, error = general_ratio(pairs, draw)
    added, concatenated = score_errors(few)
    yield at_most("largest |score of x + p − sum of its four terms|", added, 1e-9)
    yield at_most("largest |score of [x, p] − (x₁·x₂ + p₁·p₂)|", concatenated, 1e-9)
    x1, _, x2, _ = pairs
    size, cross = sigma * math.sqrt(d), float(cross_terms(pairs).std())
    within = 4 * size / math.sqrt(2 * PAIRS)
    yield equal("standard deviation of the cross terms", cross, size, within)
    same = float(_dot(x1, x1).mean())
    yield at_most("cross terms / x·x of a word with itself", cross / same, 0.1)
    slope = exponent(WIDTHS, [s / (sigma**2 * width) for width, s in sizes.items()])
    logs = np.log(WIDTHS)
    within = 4 / math.sqrt(2 * PAIRS * np.square(logs - logs.mean()).sum())
    yield equal("exponent of d in cross terms / x·x", slope, -0.5, within)
    name = "cross terms / terms of words, random W_q and W_k"
    yield equal(name, general, 1 / sigma, within=4 * error)
    ratio = cross / float(_dot(x1, x2).std())
    within = 4 / sigma * math.sqrt((1 + 1.5 / d) / PAIRS)
    yield equal("cross terms / x₁·x₂ of two different words", ratio, 1 / sigma, within)
    yield _sizes_by_width(sizes, sigma, steps)


def _sizes_by_width(sizes: Mapping[int, float], sigma: float, steps: int) -> Chart:
    widths = np.array(WIDTHS)
    root = widths**0.5
    ends = [Sinusoidal(length=steps + 1, d=width).vectors[[0, steps]] for width in WIDTHS]
    positions = [float(first @ last) for first, last in ends]
    return chart(
        series(widths, sigma**2 * widths, r"$x \cdot x$, a word with itself", color=0),
        series(widths, positions, rf"$p \cdot p$, distance {steps}", color=2),
        series(widths, sigma * root, r"cross terms, $\sigma \sqrt{d}$", color=1),
        series(widths, sizes.values(), "measured", "dots", color=1),
        series(
            widths,
            sigma**2 * root,
            r"$x_1 \cdot x_2$, two words, $\sigma^2 \sqrt{d}$",
            "dashes",
            color=3,
        ),
        x="width $d$",
        y="size",
        x_scale="log",
        y_scale="log",
        x_ticks=list(WIDTHS),
    )


def draw_pairs(n: int, d: int, sigma: float, steps: int, draw: torch.Generator) -> Pairs:
    """Draw pairs of words at positions with a distance of `steps`."""
    x1, x2 = sigma * draw_normal(draw, 2, n, d)
    vectors = Sinusoidal(length=LENGTH + steps, d=d).vectors
    first = torch.randint(LENGTH, (n,), generator=draw)
    return torch.stack([x1, vectors[first], x2, vectors[first + steps]])


def cross_terms(pairs: Pairs) -> Float[Tensor, " pairs"]:
    """Return x₁·p₂ + p₁·x₂."""
    x1, p1, x2, p2 = pairs
    return _dot(x1, p2) + _dot(p1, x2)


def score_errors(pairs: Pairs) -> tuple[float, float]:
    """Return largest differences between scores, as recovered from attention weights.

    Between x + p and its four terms, and [x, p] and its two terms.
    """
    x1, p1, x2, p2 = pairs
    words, positions = x1 @ x2.mT, p1 @ p2.mT
    cross = x1 @ p2.mT + p1 @ x2.mT
    added = _attention_scores(x1 + p1, x2 + p2)
    concatenated = _attention_scores(torch.cat([x1, p1], -1), torch.cat([x2, p2], -1))
    return (
        largest(added - _relative_to_first(words + cross + positions)),
        largest(concatenated - _relative_to_first(words + positions)),
    )


def _attention_scores(
    query: Float[Tensor, "n d"], key: Float[Tensor, "n d"]
) -> Float[Tensor, "n n"]:
    """Return scores q·k recovered from attention weights, relative to those of the first key."""
    weights = Softmax().weights(query[None, None], key[None, None])[0, 0]
    return _relative_to_first(weights.log()) * math.sqrt(query.shape[1])


def _relative_to_first(scores: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    return scores - scores[:, :1]


def general_ratio(pairs: Pairs, draw: torch.Generator) -> tuple[float, float]:
    """Return the ratio of cross terms to terms of words for random W_q and W_k of [x, p].

    Both are root mean squares; each draw of the matrices has its own pairs. The second number is
    the standard error.
    """
    d, ratios = pairs.shape[-1], []
    for part in pairs.chunk(MATRICES, dim=1):
        x1, p1, x2, p2 = (x @ draw_normal(draw, d, d) / math.sqrt(2 * d) for x in part)
        cross = _dot(x1, p2) + _dot(p1, x2)
        ratios.append(float((cross.square().mean() / _dot(x1, x2).square().mean()).sqrt()))
    return float(np.mean(ratios)), float(np.std(ratios, ddof=1) / math.sqrt(MATRICES))


def _dot(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return (a * b).sum(-1)
