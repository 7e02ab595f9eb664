"""The softmax kernel is the Gaussian kernel and two norms."""

from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.attention.feature_maps import FavorTrigonometric, Fourier
from regard.studies.figure import chart, figure, series
from regard.studies.finding import EvidenceParts, at_least, equal
from regard.studies.study import Seed, study
from regard.studies.tensors import largest, normal

DRAWN = 14
"""Queries, and keys, of whose pairs there are dots."""


Queries: TypeAlias = Float[Tensor, "queries d"]
Keys: TypeAlias = Float[Tensor, "keys d"]


@study()
def gaussian_identity(
    d: Annotated[int, Meta(ge=1, le=256)] = 16,
    n: Annotated[int, Meta(ge=2, le=128)] = 64,
    spread: Annotated[float, Meta(ge=0.1, le=4)] = 1.0,
    width: Annotated[float, Meta(ge=0.1, le=10)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How is softmax attention related to the Gaussian kernel?

    With σ² = √d, e^(q·k/√d) is exactly the Gaussian kernel of q and k, times a factor of q alone
    and a factor of k alone.

    $$ e^{q \cdot k / \sqrt{d}} = e^{\lVert q \rVert^2 / 2\sigma^2} \, e^{-\lVert q - k \rVert^2 /
    2\sigma^2} \, e^{\lVert k \rVert^2 / 2\sigma^2}, \quad \sigma^2 = \sqrt{d} $$

    ‖q − k‖² = ‖q‖² − 2 q·k + ‖k‖². So the product q·k, which softmax attention looks at, says
    the same as the distance ‖q − k‖, but for the lengths of q and of k. Nothing is approximated.

    A factor of the query is in the numerator and in the normalizer of its row, and cancels. That
    of a key does not: it gives long keys more weight. Only where all keys are of one length,
    attention by the Gaussian kernel is softmax attention.

    It matters because the Gaussian kernel is what random waves estimate (Rahimi & Recht, 2007).
    Multiplied by the two factors, they estimate the softmax kernel, from the same draw.

    Figure. A dot for each pair of a query and a key. Left: the exponent of the Gaussian kernel
    against that of softmax is a cloud. Right: with the two norms added, all dots are on the
    diagonal (line).

    Args:
        d: width of queries and keys
        n: queries, and keys
        spread: standard deviation of their entries
        width: σ², as a multiple of √d
    """
    query, key = spread * normal(seed, 2, n, d)
    variance = width * d**0.5
    gauss, of_query, of_key = parts(query, key, variance)
    exact = Softmax().weights(query[None, None], key[None, None])[0, 0]
    sides = query @ key.mT / d**0.5 - (of_query + gauss + of_key)
    level = spread * d**0.5 * key / key.norm(dim=1, keepdim=True)
    level_exact = Softmax().weights(query[None, None], level[None, None])[0, 0]
    level_gauss = parts(query, level, variance)[0].softmax(1)
    within = rounding(query, key, variance)
    yield equal("the logarithms of both sides, furthest apart", largest(sides), 0, within)
    off = largest((gauss + of_key).softmax(1) - exact)
    yield equal("weights by K·e^(‖k‖²/2σ²) and by softmax, furthest apart", off, 0, 2 * within)
    off, bound = largest(level_gauss - level_exact), 2 * rounding(query, level, variance)
    yield equal("weights by K alone, all keys of one length", off, 0, bound)
    off = largest(features_apart(query, variance))
    yield equal("logarithms of random waves' lengths, furthest apart", off, 0, within)
    yield at_least("weights by K alone, keys as they are", largest(gauss.softmax(1) - exact), 1e-6)
    scores = (query[:DRAWN] @ key[:DRAWN].mT / d**0.5).flatten()
    gauss, of_query, of_key = parts(query[:DRAWN], key[:DRAWN], variance)
    alone = series(scores, gauss.flatten(), style="dots", color=1)
    whole = series(scores, (gauss + of_query + of_key).flatten(), style="dots", color=0)
    ends = [scores.min(), scores.max()]
    diagonal = series(ends, ends, color=5)
    left, right = "−‖q − k‖²/2σ²", "(‖q‖² + ‖k‖² − ‖q − k‖²)/2σ²"
    yield figure(
        chart(alone, title="the Gaussian kernel alone", x="q·k/√d", y=left),
        chart(whole, diagonal, title="with both factors", x="q·k/√d", y=right),
    )


def parts(
    query: Queries, key: Keys, variance: float
) -> tuple[Float[Tensor, "queries keys"], Float[Tensor, "queries 1"], Float[Tensor, " keys"]]:
    """The logarithms of the Gaussian kernel, of the query's factor and of the key's."""
    distances = (query[:, None] - key).square().sum(-1)
    of_query, of_key = (x.square().sum(1) / (2 * variance) for x in (query, key))
    return -distances / (2 * variance), of_query[:, None], of_key


def features_apart(x: Float[Tensor, "n d"], variance: float) -> Float[Tensor, " n"]:
    """How far ln‖φ(x)‖ of the softmax kernel's waves is from that of the Gaussian's and the factor.

    The waves themselves are the same; `tests/attention/test_feature_maps.py` compares each.
    """
    d = x.shape[1]
    gauss = Fourier(d=d, features=32, sigma=variance**0.5).double()
    softmax = FavorTrigonometric(d=d, features=32).double()
    (waves, scale), (other_waves, other_scale) = gauss(x), softmax(x)
    expected = waves.norm(dim=1).log() + scale + x.square().sum(1) / (2 * variance)
    apart: Tensor = other_waves.norm(dim=1).log() + other_scale - expected
    return apart


def rounding(query: Queries, key: Keys, variance: float) -> float:
    """How far rounding may take the exponents: they are sums of d terms, and this large at most."""
    largest = (query.norm(dim=1).max() + key.norm(dim=1).max()) ** 2 / variance
    return float((query.shape[1] + 8) * torch.finfo(query.dtype).eps * (1 + largest))
