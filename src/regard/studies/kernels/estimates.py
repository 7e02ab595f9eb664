"""Estimates of the softmax kernel by random features, and their errors by theory.

x = q/d^¼ and y = k/d^¼ throughout, so that the kernel is SM = e^(x·y). With a = ‖x + y‖² and
b = ‖x − y‖², x·y = (a − b)/4 and ‖x‖² + ‖y‖² = (a + b)/2, so that everything depends on a and b.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.feature_maps import (
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    RandomFeatures,
    draw_directions,
)
from regard.studies.tensors import mean_error

BATCH = 10_000
"""Number of estimates per draw of directions."""
KINDS: dict[str, type[RandomFeatures]] = {
    "trigonometric": FavorTrigonometric,
    "positive": FavorPositive,
    "hyperbolic": FavorHyperbolic,
}


class Pair(NamedTuple):
    """x and y, up to a rotation."""

    a: float
    b: float

    @staticmethod
    def of(length: float, cosine: float) -> "Pair":
        """Return two vectors of this length."""
        return Pair(2 * length**2 * (1 + cosine), 2 * length**2 * (1 - cosine))

    @property
    def kernel(self) -> float:
        """SM = e^(x·y)."""
        return math.exp((self.a - self.b) / 4)

    @property
    def shrunk(self) -> float:
        """e^(−(‖x‖² + ‖y‖²)/2)."""
        return math.exp(-(self.a + self.b) / 4)

    def vectors(self, d: int) -> tuple[Float[Tensor, "1 d"], Float[Tensor, "1 d"]]:
        """Return a query and a key with this pair's x and y."""
        total, difference = torch.zeros(2, 1, d, dtype=torch.float64)
        total[0, 0], difference[0, 1] = self.a**0.5, self.b**0.5
        scale = d**0.25 / 2
        return scale * (total + difference), scale * (total - difference)


class Errors(NamedTuple):
    """Errors of many independent estimates of one kernel."""

    mean: float
    """Mean of the estimates."""
    square: float
    """Mean squared error."""
    uncertainty: float
    """Standard error of `square`."""


def measure(
    pairs: Sequence[Pair], *, d: int, m: int, orthogonal: bool, count: int, seed: int
) -> dict[tuple[str, Pair], Errors]:
    """Return errors of `count` estimates by each kind of features, with m ≤ d directions each.

    All kinds and pairs share the draws. An estimate uses the first m directions of a block of d;
    blocks are independent.
    """
    estimates: dict[tuple[str, Pair], list[Tensor]] = {
        (name, pair): [] for name in KINDS for pair in pairs
    }
    for own in np.random.SeedSequence(seed).generate_state(count // BATCH):
        directions = draw_directions(BATCH * d, d, orthogonal=orthogonal, seed=int(own))
        for (name, pair), found in estimates.items():
            each = by_direction(KINDS[name], directions, *pair.vectors(d))
            found.append(each.view(BATCH, d)[:, :m].mean(1))
    return {key: errors(torch.cat(found), key[1].kernel) for key, found in estimates.items()}


def by_direction(
    kind: type[RandomFeatures],
    directions: Float[Tensor, "directions d"],
    query: Float[Tensor, "1 d"],
    key: Float[Tensor, "1 d"],
) -> Float[Tensor, " directions"]:
    """Return the estimate of each single direction; φ(q)·φ(k) is their mean."""
    features = kind(d=directions.shape[1], features=1)
    features.directions = directions
    (of_query, query_scale), (of_key, key_scale) = features(query), features(key)
    products = (of_query * of_key).view(-1, len(directions)).sum(0)
    each: Tensor = len(directions) * products * (query_scale + key_scale).exp()
    return each


def errors(estimates: Float[Tensor, " count"], exact: float) -> Errors:
    """Return the errors of estimates."""
    squares = (estimates - exact).square()
    return Errors(float(estimates.mean()), float(squares.mean()), mean_error(squares))


def predicted(name: str, pair: Pair, m: int) -> float:
    """Return the mean squared error of m independent directions.

    By lemma 2 of Choromanski et al., 2021.
    """
    factor, a, b = math.exp(pair.a), pair.a, pair.b
    if name == "trigonometric":
        return factor * pair.kernel**-2 * (1 - math.exp(-b)) ** 2 / (2 * m)
    positive = factor * pair.kernel**2 * (1 - math.exp(-a)) / m
    return positive if name == "positive" else (1 - math.exp(-a)) / 2 * positive


def orthogonal_bound(pair: Pair, m: int, d: int) -> float:
    """Return a bound of the mean squared error of positive features, m ≤ d orthogonal directions.

    By theorem 2 of the same paper.
    """
    gain = 2 * (m - 1) / (m * (d + 2)) * (pair.kernel - pair.shrunk) ** 2
    return predicted("positive", pair, m) - gain
