"""Keys drawn around orthonormal means, as the course asks of one head and of two.

The values are the unit vectors: the output c is then the weights themselves.
"""

import math
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.finding import Measurement, equal

A, B = 0, 1
"""The keys that are looked for."""

Keys: TypeAlias = Annotated[int, Meta(ge=3, le=48, description="keys")]
Length: TypeAlias = Annotated[
    float, Meta(gt=0, le=10_000, description="length of a query along each mean")
]
Noise: TypeAlias = Annotated[
    float, Meta(gt=0, le=1, description="α, the variance of each key in every direction")
]
Stretch: TypeAlias = Annotated[
    float, Meta(gt=0, le=4, description="variance of k_a along its mean, beyond α")
]
Draws: TypeAlias = Annotated[int, Meta(ge=100, le=8000, description="draws of all keys")]
Seed: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32, description="seed of the draw")]


def noisy_keys(
    draws: int, n: int, alpha: float, stretch: float, seed: int
) -> Float[Tensor, "draws n n"]:
    """k_i ~ N(μ_i, αI), but k_a ~ N(μ_a, αI + stretch·μ_a μ_aᵀ); the means are unit vectors.

    With the same seed, other variances give the same noise in another size.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(draws, n, n, generator=generator, dtype=torch.float64)
    along = torch.randn(draws, generator=generator, dtype=torch.float64)
    keys = math.sqrt(alpha) * noise + torch.eye(n, dtype=torch.float64)
    keys[:, A, A] += math.sqrt(stretch) * along
    return keys


def toward(n: int, t: float, *means: int) -> Float[Tensor, " n"]:
    """The query t·(the sum of some means)."""
    query = torch.zeros(n, dtype=torch.float64)
    query[list(means)] = t
    return query


def attended(
    keys: Float[Tensor, "draws keys n"], query: Float[Tensor, " n"]
) -> Float[Tensor, "draws keys"]:
    """c, draw by draw."""
    queries = query.expand(len(keys), 1, 1, len(query))
    return Softmax(scaled=False).weights(queries, keys[:, None])[:, 0, 0]


def without_noise(
    gamma: Float[Tensor, " draws"], query: Float[Tensor, " n"]
) -> Float[Tensor, "draws n"]:
    """c by the formula as α → 0: k_a = γμ_a, and every other key is its mean."""
    scores = query.repeat(len(gamma), 1)
    scores[:, A] *= gamma
    return scores.softmax(-1)


def evenly_drawn(stretch: float, count: int = 20_001) -> Float[Tensor, " count"]:
    """γ ~ N(1, stretch) without chance: as many quantiles, for averages over it."""
    below = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    gamma: Tensor = 1 + math.sqrt(stretch) * torch.special.ndtri(below)
    return gamma


def misplaced(c: Float[Tensor, "draws n"]) -> Float[Tensor, " draws"]:
    """The share of the weight that is elsewhere than in ½(v_a + v_b)."""
    wanted = toward(c.shape[-1], 0.5, A, B)
    return (c - wanted).abs().sum(-1) / 2


def share(name: str, happened: Bool[Tensor, " draws"], p: float) -> Measurement:
    """A share of draws that must be p, to within four standard errors and one draw."""
    error = math.sqrt(p * (1 - p) / len(happened))
    return equal(name, happened.double().mean(), p, within=4 * error + 1 / len(happened))


def normal(x: float) -> float:
    """Φ, the distribution function of the normal distribution."""
    return math.erfc(-x / math.sqrt(2)) / 2
