"""The softmax kernel as a product of the Gaussian kernel and two norms."""

from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import chart, figure, series
from regard.studies.finding import at_least, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, normal

DRAWN = 14
"""Number of queries and keys in the figure."""
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

    Both sides are compared for random queries and keys, and softmax attention with attention by the
    Gaussian kernel, with the factor of the key and without.

    Figure. One dot per pair of query and key. Left: the exponent of the Gaussian kernel against
    that of softmax; the dots scatter. Right: with the two norms added, all dots are on the diagonal
    (line).

    Args:
        d: width of queries and keys
        n: number of queries and of keys
        spread: standard deviation of their entries
        width: σ² as a multiple of √d
    """
    query, key = spread * normal(seed, 2, n, d)
    variance = width * d**0.5
    gauss, of_query, of_key = parts(query, key, variance)
    scores, both = query @ key.mT / d**0.5, of_query + gauss + of_key
    exact, within = softmax_weights(query, key), rounding(query, key, variance)
    level = spread * d**0.5 * key / key.norm(dim=1, keepdim=True)
    gauss_of_level = parts(query, level, variance)[0]
    error, bound = largest(scores - both), rounding(query, level, variance)
    yield equal("largest difference of the logarithms of both sides", error, 0, within)
    name = "largest difference of weights from softmax"
    error = largest((gauss + of_key).softmax(1) - exact)
    yield equal(f"{name}, K·e^(‖k‖²/2σ²)", error, 0, 2 * within)
    error = largest(gauss_of_level.softmax(1) - softmax_weights(query, level))
    yield equal(f"{name}, K alone, keys of equal length", error, 0, 2 * bound)
    yield at_least(f"{name}, K alone", largest(gauss.softmax(1) - exact), 1e-6)
    alone, together, score = (x[:DRAWN, :DRAWN].flatten() for x in (gauss, both, scores))
    ends = [score.min(), score.max()]
    left, right = (
        r"$-\lVert q - k \rVert^2 / 2\sigma^2$",
        r"$(\lVert q \rVert^2 + \lVert k \rVert^2 - \lVert q - k \rVert^2) / 2\sigma^2$",
    )
    dots, x = series(score, alone, style="dots", color=1), r"$q \cdot k / \sqrt{d}$"
    whole = series(score, together, style="dots", color=0), series(ends, ends, color=5)
    yield figure(
        chart(dots, title="the Gaussian kernel alone", x=x, y=left),
        chart(*whole, title="with both factors", x=x, y=right),
    )


def softmax_weights(query: Queries, key: Keys) -> Float[Tensor, "queries keys"]:
    """Return the weights of softmax attention."""
    return Softmax().weights(query[None, None], key[None, None])[0, 0]


def parts(
    query: Queries, key: Keys, variance: float
) -> tuple[Float[Tensor, "queries keys"], Float[Tensor, "queries 1"], Float[Tensor, " keys"]]:
    """Return the logarithms of the Gaussian kernel, of the query's factor and of the key's."""
    distances = (query[:, None] - key).square().sum(-1)
    of_query, of_key = (x.square().sum(1) / (2 * variance) for x in (query, key))
    return -distances / (2 * variance), of_query[:, None], of_key


def rounding(query: Queries, key: Keys, variance: float) -> float:
    """Return a bound for rounding of the exponents, which are sums of d terms."""
    size = (query.norm(dim=1).max() + key.norm(dim=1).max()) ** 2 / variance
    return float((query.shape[1] + 8) * torch.finfo(query.dtype).eps * (1 + size))
