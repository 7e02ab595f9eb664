"""Attention maps of random queries and keys."""

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from scipy.stats import chi2
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import chart, figure, heat_map, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    Outside,
    at_least,
    at_most,
    equal,
    look_inside,
)
from regard.studies.study import Seed, study
from regard.studies.tensors import largest, normal

DRAWS = 50
"""How many random heads are measured."""
SHOWN = 64
"""How many tokens of a map are drawn."""
NEAR = 0.011
"""Largest error of the formula for 18 pairs of h, from 8 to 256, and n, from 20 to 512."""


@study()
def random_heads(
    h: Annotated[int, Meta(ge=2, le=512)] = 64,
    n: Annotated[int, Meta(ge=2, le=512)] = 20,
    h_beyond: Annotated[int, Meta(ge=2, le=512)] = 8,
    n_beyond: Annotated[int, Meta(ge=2, le=512)] = 128,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do the attention maps of random Q and K look like, and what if Q = K?

    Weights add up to 1 over the keys, not over the queries. If Q = K, each query gives nearly all
    of its weight to its own key, and the map is close to the identity.

    $$ E[\alpha_{ii}] \approx \sigma\left(\frac{m}{\sqrt{1 + \frac{\pi}{4} \left(1 - \frac{1}{2
    \sqrt{h}}\right)^2}}\right), \quad m = \sqrt{h} - \tfrac{1}{2} - \ln(n - 1) $$

    Softmax divides by a sum over keys, so each query has a weight of 1 to give away. Nothing
    sees to it that each key receives as much.

    If Q = K, a query's product with its own key is ‖q‖², about h, and so its score is about √h. Its
    scores with the other keys are normal with variance about 1, and the mean of e^s is then √e. So
    the own key weighs e^√h against (n − 1)√e: the weight is σ(m), the logistic function of
    m = √h − ½ − ln(n − 1). But ‖q‖² is χ² distributed with h degrees of freedom and deviates by
    √(2h) from h, so that the logarithm of the ratio deviates by s = √2(1 − 1/(2√h)) from m. The
    mean of σ over a normal distribution is near σ(m/√(1 + πs²/8)): that is the formula, within
    0.011 where it was compared, h = 8 to 256 and n = 20 to 512. The second prediction
    averages over the quantiles of ‖q‖² instead, and is closer.

    With h = 64 and 20 tokens the map is nearly the identity, and the outputs are nearly the values.
    It isn't for short queries or many tokens: √h has to grow like ln n.

    Figure. Maps of weights, of the first {most} tokens at most. With independent queries and keys
    the weight is spread over all keys. With Q = K it is mostly on the diagonal for {within}, and
    less so for {beyond}. The curves of the own weight rise with h, later if there are more tokens.
    Lines: formula; dashes: averaged over ‖q‖²; dots: measured.

    Args:
        h: length of queries and keys
        n: tokens
        h_beyond: length where the condition isn't met
        n_beyond: tokens where the condition isn't met
    """
    apart, same = random_maps(h, n, seed), equal_maps(h, n, seed)
    beyond = equal_maps(h_beyond, n_beyond, seed)
    yield at_most("sum over keys, farthest from 1", largest(apart.sum(-1) - 1), 1e-12)
    yield at_least("sum over queries, farthest from 1", largest(apart.sum(-2) - 1), 0.1)
    yield from diagonal_numbers(same, h)
    yield from diagonal_numbers(beyond, h_beyond)
    yield _near_identity(same, h)
    yield at_most("‖o_i − v_i‖ over ‖v_i‖, mean", output_error(same, seed), 0.1)
    yield Outside("e^√h ≫ n√e", [_near_identity(beyond, h_beyond)])
    shown = {
        f"Q, K random, {_size(h, n)}": apart,
        f"Q = K, {_size(h, n)}": same,
        f"Q = K, {_size(h_beyond, n_beyond)}": beyond,
    }
    panels = []
    for title, maps in shown.items():
        keys = f"keys 1 to {min(maps.shape[-1], SHOWN)}"
        first = maps[0, :SHOWN, :SHOWN]
        panels.append(heat_map(first, title=title, x=keys, y="queries", unit="weight"))
    lengths, measured = range(2, 145), (4, 16, 36, 64, 100, 144)
    curves = []
    for i, count in enumerate(sorted({n, n_beyond})):
        predicted = [formula_weight(width, count) for width in lengths]
        closer = [averaged_weight(width, count) for width in lengths[::6]]
        dots = [own(equal_maps(width, count, seed)) for width in measured]
        curves += [
            series(lengths, predicted, f"{count} tokens", color=i),
            series(lengths[::6], closer, style="dashes", color=i),
            series(measured, dots, style="dots", color=i),
        ]
    yield figure(
        *panels,
        chart(*curves, title="own weight, Q = K", x="h", y_limits=(0, 1.03)),
        columns=2,
        most=SHOWN,
        within=_size(h, n),
        beyond=_size(h_beyond, n_beyond),
    )
    (query, key), both = normal(seed, 2, DRAWS, 1, n, h)[:, :1], normal(seed, DRAWS, 1, n, h)[:1]
    heads = (torch.cat(pair, 1) for pair in ((query, both), (key, both), (key, both)))
    yield look_inside(Softmax(), *heads, title="head 0, random Q and K; head 1, Q = K")


def random_maps(h: int, n: int, seed: int) -> Float[Tensor, "draws n n"]:
    """The weights of independent queries and keys with entries from N(0, 1)."""
    query, key = normal(seed, 2, DRAWS, 1, n, h)
    return Softmax().weights(query, key)[:, 0]


def equal_maps(h: int, n: int, seed: int) -> Float[Tensor, "draws n n"]:
    """The same where the queries are the keys."""
    key = normal(seed, DRAWS, 1, n, h)
    return Softmax().weights(key, key)[:, 0]


def own(maps: Float[Tensor, "draws n n"]) -> float:
    """What a token gives to itself, on average."""
    return float(maps.diagonal(dim1=-2, dim2=-1).mean())


def output_error(maps: Float[Tensor, "draws n n"], seed: int) -> float:
    """How far outputs are from their own values, which are as random as the keys."""
    draws, n, _ = maps.shape
    value = normal(seed + 1, draws, n, 64)
    return float(((maps @ value - value).norm(dim=-1) / value.norm(dim=-1)).mean())


def formula_weight(h: int, n: int) -> float:
    """The formula: the mean of a logistic function of a normal number."""
    mean = math.sqrt(h) - 0.5 - math.log(n - 1)
    deviation = math.sqrt(2) * (1 - 1 / (2 * math.sqrt(h)))
    return 1 / (1 + math.exp(-mean / math.sqrt(1 + math.pi * deviation**2 / 8)))


def averaged_weight(h: int, n: int) -> float:
    """Average over ‖q‖²: score ‖q‖²/√h against mean weights e^(‖q‖²/2h)."""
    return float(_by_length(h, n)[1].mean())


def _by_length(h: int, n: int, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """As many quantiles of ‖q‖², and the own weight at each."""
    squares = chi2.ppf((np.arange(count) + 0.5) / count, h)
    return squares, 1 / (1 + (n - 1) * np.exp(squares / (2 * h) - squares / math.sqrt(h)))


def _remainder(h: int, n: int) -> float:
    """About what a sum that differs from its mean adds to the own weight a: a(1 − a)²·v,

    where v = (e^(‖q‖²/h) − 1)/(n − 1) is the relative variance of the sum of the other weights.
    """
    squares, weight = _by_length(h, n)
    variance = np.expm1(squares / h) / (n - 1)
    return float((weight * (1 - weight) ** 2 * variance).mean())


def diagonal_numbers(maps: Float[Tensor, "draws n n"], h: int) -> Iterator[Measurement]:
    """The own weight and both predictions, each to within four standard errors."""
    n = maps.shape[-1]
    each = maps.diagonal(dim1=-2, dim2=-1).mean(-1)
    error = float(each.std()) / math.sqrt(len(each))
    rest = _remainder(h, n)
    name = f"own weight by the {{}}: {_size(h, n)}"
    yield equal(name.format("formula"), own(maps), formula_weight(h, n), within=NEAR + 4 * error)
    averaged = averaged_weight(h, n) + rest / 2
    yield equal(name.format("average over ‖q‖²"), own(maps), averaged, within=4 * error + rest)


def _near_identity(maps: Float[Tensor, "draws n n"], h: int) -> Measurement:
    size = _size(h, maps.shape[-1])
    return at_least(f"required diagonal weight of a near identity: {size}", own(maps), 0.9)


def _size(h: int, n: int) -> str:
    return f"h = {h}, n = {n}"
