"""Attention maps of random queries and keys."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import Chart, HeatMap, figure, formula_chart, heat_map
from regard.studies.finding import (
    Measurement,
    Outside,
    at_least,
    at_most,
    equal,
    informational,
    look_inside,
)
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, mean_error, normal

DRAWS = 50
"""Number of random heads."""
SHOWN = 64
"""Largest number of tokens in a heat map."""
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
    r"""How do attention maps of random Q and K differ from those with Q = K?

    Weights sum to 1 over the keys, not over the queries. If Q = K, each query gives nearly all of
    its weight to its own key, and the map is close to the identity.

    $$ E[\alpha_{ii}] \approx \sigma\left(\frac{m}{\sqrt{1 + \frac{\pi}{4} \left(1 - \frac{1}{2
    \sqrt{h}}\right)^2}}\right), \quad m = \sqrt{h} - \tfrac{1}{2} - \ln(n - 1) $$

    Weights are measured for many random heads and compared with the formula. Its error is at most
    0.011 for the compared sizes, h = 8 to 256 and n = 20 to 512.

    Figure. Maps of weights, at most the first {most} tokens. With independent queries and keys the
    weight is spread over all keys. With Q = K it is mostly on the diagonal for {within}, and less
    so for {beyond}. The diagonal weight rises with h; more tokens need a larger h. Lines: formula.
    Dots: measured.

    Args:
        h: length of queries and keys
        n: number of tokens
        h_beyond: length for which the condition isn't met
        n_beyond: number of tokens for which the condition isn't met
    """
    independent, same = random_maps(h, n, seed), equal_maps(h, n, seed)
    beyond = equal_maps(h_beyond, n_beyond, seed)
    name = "largest deviation from 1 of a sum over"
    yield at_most(f"{name} keys", largest(independent.sum(-1) - 1), 1e-12)
    yield at_least(f"{name} queries", largest(independent.sum(-2) - 1), 0.1)
    sums = independent[0].sum(-2)
    yield informational("map shown: least sum over queries", sums.min())
    yield informational("map shown: largest sum over queries", sums.max())
    yield by_formula(same, h)
    yield by_formula(beyond, h_beyond)
    yield _near_identity(same, h)
    yield at_most("mean of ‖o_i − v_i‖/‖v_i‖", output_error(same, seed), 0.1)
    yield Outside("e^√h ≫ n√e", [_near_identity(beyond, h_beyond)])
    panels = (
        _first_map(independent, h, "$Q$, $K$ random"),
        _first_map(same, h, "$Q = K$"),
        _first_map(beyond, h_beyond, "$Q = K$"),
        _by_length(sorted({n, n_beyond}), seed),
    )
    sizes = {"within": _size(same, h), "beyond": _size(beyond, h_beyond)}
    yield figure(*panels, columns=2, most=SHOWN, **sizes)
    (query, key), both = normal(seed, 2, DRAWS, 1, n, h)[:, :1], normal(seed, DRAWS, 1, n, h)[:1]
    heads = (torch.cat(pair, 1) for pair in ((query, both), (key, both), (key, both)))
    yield look_inside(Softmax(), *heads, title="head 0, random Q and K; head 1, Q = K")


def _first_map(maps: Float[Tensor, "draws n n"], h: int, title: str) -> HeatMap:
    n = maps.shape[-1]
    axes = {"x": f"keys 1 to {min(n, SHOWN)}", "y": "queries", "unit": "weight"}
    return heat_map(maps[0, :SHOWN, :SHOWN], title=f"{title}, $h$ = {h}, $n$ = {n}", **axes)


def _by_length(counts: Sequence[int], seed: int) -> Chart:
    """Return the diagonal weight by h, for several numbers of tokens."""
    formulas, measured = {}, {}
    for n in counts:
        weights = {h: diagonal_weight(equal_maps(h, n, seed)) for h in (4, 16, 36, 64, 100, 144)}
        formulas[f"{n} tokens"], measured[f"{n} tokens"] = partial(formula_weight, n=n), weights
    axes: dict[str, Any] = {"title": "diagonal weight, $Q = K$", "x": "$h$", "y_limits": (0, 1.03)}
    return formula_chart(range(2, 145), formulas, measured, **axes)


def random_maps(h: int, n: int, seed: int) -> Float[Tensor, "draws n n"]:
    """Return the weights of independent queries and keys with entries from N(0, 1)."""
    query, key = normal(seed, 2, DRAWS, 1, n, h)
    return Softmax().weights(query, key)[:, 0]


def equal_maps(h: int, n: int, seed: int) -> Float[Tensor, "draws n n"]:
    """Return the weights of queries that equal the keys."""
    key = normal(seed, DRAWS, 1, n, h)
    return Softmax().weights(key, key)[:, 0]


def diagonal_weight(maps: Float[Tensor, "draws n n"]) -> float:
    """Return the mean weight of a query's own key."""
    return float(maps.diagonal(dim1=-2, dim2=-1).mean())


def output_error(maps: Float[Tensor, "draws n n"], seed: int) -> float:
    """Return the mean relative distance of outputs from their own values, drawn from N(0, 1)."""
    draws, n, _ = maps.shape
    value = normal(seed + 1, draws, n, 64)
    return float(((maps @ value - value).norm(dim=-1) / value.norm(dim=-1)).mean())


def formula_weight(h: int, n: int) -> float:
    """Return the formula's diagonal weight: the mean of a logistic function of a normal number."""
    mean = math.sqrt(h) - 0.5 - math.log(n - 1)
    deviation = math.sqrt(2) * (1 - 1 / (2 * math.sqrt(h)))
    return 1 / (1 + math.exp(-mean / math.sqrt(1 + math.pi * deviation**2 / 8)))


def by_formula(maps: Float[Tensor, "draws n n"], h: int) -> Measurement:
    """Return the diagonal weight, which must equal the formula's within four standard errors."""
    within = NEAR + 4 * mean_error(maps.diagonal(dim1=-2, dim2=-1).mean(-1))
    name = f"diagonal weight by the formula: {_size(maps, h)}"
    return equal(name, diagonal_weight(maps), formula_weight(h, maps.shape[-1]), within)


def _near_identity(maps: Float[Tensor, "draws n n"], h: int) -> Measurement:
    name = f"required diagonal weight of a near identity: {_size(maps, h)}"
    return at_least(name, diagonal_weight(maps), 0.9)


def _size(maps: Float[Tensor, "draws n n"], h: int) -> str:
    return f"h = {h}, n = {maps.shape[-1]}"
