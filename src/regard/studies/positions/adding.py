"""Positions added to the words, or put beside them."""

import math
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.positions import Sinusoidal
from regard.studies.costs import exponent
from regard.studies.figure import one_chart, series
from regard.studies.finding import EvidenceParts, Measurement, at_most, equal, informational
from regard.studies.study import Seed, study
from regard.studies.tensors import draw_normal, largest

LENGTH = 512
"""Positions that pairs of words are drawn from."""
PAIRS = 2000
WIDTHS = (16, 32, 64, 128, 256, 512)
MATRICES = 16
"""Draws of W_q and W_k."""


class Pairs(NamedTuple):
    """Words and positions of queries and keys, a row a pair."""

    x1: Float[Tensor, "pairs d"]
    p1: Float[Tensor, "pairs d"]
    x2: Float[Tensor, "pairs d"]
    p2: Float[Tensor, "pairs d"]


@study()
def adding(
    d: Annotated[int, Meta(ge=2, le=1024, multiple_of=2)] = 256,
    sigma: Annotated[float, Meta(ge=0.1, le=2)] = 1.0,
    steps: Annotated[int, Meta(ge=1, le=256)] = 1,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Are positions added to words, or concatenated with them?

    Adding gives the score two cross terms, of word and position, that concatenation does not.
    Relative to x·x of a word with itself they fall as 1/√d, here below a tenth; relative to x₁·x₂
    of two different words they do not fall. A general W_qᵀW_k brings them back in either case.

    $$ (x_1 + p_1)^\top (x_2 + p_2) = x_1^\top x_2 + x_1^\top p_2 + p_1^\top x_2 + p_1^\top p_2,
    \quad [x_1, p_1]^\top [x_2, p_2] = x_1^\top x_2 + p_1^\top p_2 $$

    Words are drawn here as x ~ N(0, σ²I), as embeddings are before training, and positions p are
    sinusoids, of length √(d/2). Then x·x of a word with itself is about σ²d, and p·p of close
    positions about d/2. The two cross terms together have mean 0 and standard deviation σ√d, since
    directions in a high dimension are nearly orthogonal. So beside those products they vanish.

    But x₁·x₂ of two different words is just as random: its standard deviation is σ²√d. Beside it
    the cross terms aren't small at any width. They are noise of the same size.

    Nor does it decide what a model can do. With W_q = W_k = [I I], which adds both halves,
    concatenation is addition to the last digit; and with any W_q and W_k the score of [x, p] has
    cross terms of the size that the products of words have. What concatenation takes is width.

    Figure. Against the width: the product of a word with itself and that of close positions grow as
    d, the cross terms as √d, like the product of two different words. Lines and dashes: formulas;
    dots: measured.

    Args:
        d: width
        sigma: size of a word's entries
        steps: from position to position
    """
    draw = torch.Generator().manual_seed(seed)
    few = draw_pairs(8, d, sigma, steps, draw)
    pairs = draw_pairs(PAIRS, d, sigma, steps, draw)
    cross, words = float(cross_terms(pairs).std()), float(_dot(pairs.x1, pairs.x2).std())
    same = float(_dot(pairs.x1, pairs.x1).mean())
    drawn = {width: draw_pairs(PAIRS, width, sigma, steps, draw) for width in WIDTHS}
    sizes = {width: float(cross_terms(each).std()) for width, each in drawn.items()}
    general, error = general_ratio(pairs, draw)
    yield at_most("score of the sums, less its four terms", added_error(few), 1e-9)
    yield at_most("score side by side, less x₁·x₂ + p₁·p₂", beside_error(few), 1e-9)
    size = sigma * math.sqrt(d)
    within = 4 * size / math.sqrt(2 * PAIRS)
    yield equal("standard deviation of the cross terms", cross, size, within)
    yield at_most("beside x·x of a word with itself", cross / same, 0.1)
    yield _exponent(sizes, sigma)
    yield at_most("[x, p] by W_q = W_k = [I I], less the sum", identity_error(few), 1e-9)
    name = "by random W_q, W_k: cross terms beside those of words"
    yield equal(name, general, 1 / sigma, within=4 * error)
    yield informational("p·p at this distance", _dot(pairs.p1, pairs.p2).mean())
    within = 4 / sigma * math.sqrt((1 + 1.5 / d) / PAIRS)
    yield equal("cross terms beside x₁·x₂ of two different words", cross / words, 1 / sigma, within)
    widths = np.array(WIDTHS)
    root = widths**0.5
    yield one_chart(
        series(widths, sigma**2 * widths, "x·x, a word with itself", color=0),
        series(widths, [_near(width, steps) for width in WIDTHS], f"p·p, {steps} apart", color=2),
        series(widths, sigma * root, "cross terms, σ√d", color=1),
        series(widths, sizes.values(), "measured", "dots", color=1),
        series(widths, sigma**2 * root, "x₁·x₂, two words, σ²√d", "dashes", color=3),
        x="width d",
        y="size",
        x_scale="log",
        y_scale="log",
        x_ticks=list(WIDTHS),
    )


def draw_pairs(n: int, d: int, sigma: float, steps: int, draw: torch.Generator) -> Pairs:
    """Different words, `steps` positions apart."""
    x1, x2 = sigma * draw_normal(draw, 2, n, d)
    vectors = Sinusoidal(length=LENGTH + steps, d=d).vectors
    first = torch.randint(LENGTH, (n,), generator=draw)
    return Pairs(x1, vectors[first], x2, vectors[first + steps])


def cross_terms(pairs: Pairs) -> Float[Tensor, " pairs"]:
    """x₁·p₂ + p₁·x₂."""
    return _dot(pairs.x1, pairs.p2) + _dot(pairs.p1, pairs.x2)


def added_error(pairs: Pairs) -> float:
    """How far attention's scores of x + p are from the sum of the four terms."""
    x1, p1, x2, p2 = pairs
    scores = used_scores(x1 + p1, x2 + p2)
    return _difference(scores, x1 @ x2.mT + x1 @ p2.mT + p1 @ x2.mT + p1 @ p2.mT)


def beside_error(pairs: Pairs) -> float:
    """How far attention's scores of [x, p] are from x₁·x₂ + p₁·p₂."""
    x1, p1, x2, p2 = pairs
    scores = used_scores(torch.cat([x1, p1], -1), torch.cat([x2, p2], -1))
    return _difference(scores, x1 @ x2.mT + p1 @ p2.mT)


def identity_error(pairs: Pairs) -> float:
    """How far attention's scores of [x, p], projected by [I I], are from those of x + p."""
    x1, p1, x2, p2 = pairs
    both = torch.eye(x1.shape[1], dtype=torch.float64).repeat(1, 2)
    projected = used_scores(torch.cat([x1, p1], -1) @ both.mT, torch.cat([x2, p2], -1) @ both.mT)
    return _difference(projected, used_scores(x1 + p1, x2 + p2))


def used_scores(query: Float[Tensor, "n d"], key: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Scores q·k recovered from attention weights, relative to that of the first key."""
    weights = Softmax().weights(query[None, None], key[None, None])[0, 0]
    return (weights.log() - weights[:, :1].log()) * math.sqrt(query.shape[1])


def general_ratio(pairs: Pairs, draw: torch.Generator) -> tuple[float, float]:
    """By random W_q and W_k of [x, p]: cross terms beside those of words, and its standard error.

    Both are root mean squares; each draw of the matrices has pairs of its own.
    """
    d = pairs.x1.shape[1]
    ratios = []
    for part in zip(*(tensor.chunk(MATRICES) for tensor in pairs), strict=True):
        x1, p1, x2, p2 = part
        of_x1, of_p1, of_x2, of_p2 = (
            x @ draw_normal(draw, d, d) / math.sqrt(2 * d) for x in (x1, p1, x2, p2)
        )
        cross = _dot(of_x1, of_p2) + _dot(of_p1, of_x2)
        ratios.append(float((cross.square().mean() / _dot(of_x1, of_x2).square().mean()).sqrt()))
    return float(np.mean(ratios)), float(np.std(ratios, ddof=1) / math.sqrt(MATRICES))


def _dot(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return (a * b).sum(-1)


def _difference(scores: Float[Tensor, "n n"], terms: Float[Tensor, "n n"]) -> float:
    """Between scores less the first of their row, and terms less theirs."""
    return largest(scores - (terms - terms[:, :1]))


def _exponent(sizes: dict[int, float], sigma: float) -> Measurement:
    """Of d, in cross terms / x·x, by least squares over logarithms."""
    logs = np.log(list(sizes))
    slope = exponent(list(sizes), [s / (sigma**2 * d) for d, s in sizes.items()])
    error = 1 / math.sqrt(2 * PAIRS * np.square(logs - logs.mean()).sum())
    return equal("they fall as d to the power", slope, -0.5, within=4 * error)


def _near(d: int, steps: int) -> float:
    first, last = Sinusoidal(length=steps + 1, d=d).vectors[[0, steps]]
    return float(first @ last)
