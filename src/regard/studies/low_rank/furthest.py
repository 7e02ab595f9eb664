"""The furthest of many vectors, a task that needs full attention."""

import math
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, BigBird, Mask
from regard.studies.figure import chart, series
from regard.studies.finding import at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import normal, share_error

_BLOCK, _SIDE = 8, 1
LAYERS = (1, 2, 4, 8, 16, 32)


@study()
def furthest(
    n: Annotated[int, Meta(ge=64, le=512, multiple_of=_BLOCK)] = 256,
    d: Annotated[int, Meta(ge=2, le=64)] = 16,
    random: Annotated[int, Meta(ge=0, le=64)] = 3,
    draws: Annotated[int, Meta(ge=1, le=8)] = 8,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which task can one layer of full attention solve, but not one layer of sparse attention?

    One layer of full attention finds, for each of n vectors, the one furthest from it. BigBird
    finds it only for queries whose mask contains it, a fixed share per layer, and more with more
    layers.

    $$ j^*(i) = \operatorname{argmax}_j \|u_j - u_i\|^2 = \operatorname{argmax}_j \left(-u_i \cdot
    u_j\right), \quad \|u_j\| = 1 $$

    A head with the query −u, the key u and the value u finds the furthest vector by argmax, the
    limit of softmax for long queries. With more layers of BigBird, each with its own random blocks,
    the best vector so far is kept: 1 − (1 − r)^layers of the rest is found, where r is the share of
    the rest that a layer attends to.

    Figure. Share of vectors whose furthest is found, against the number of layers. It is 1 from the
    first layer on with full attention; with BigBird it is small at first and approaches 1. Lines:
    formula. Dots: measured.

    Args:
        n: number of vectors on the unit sphere
        d: their width
        random: number of random blocks per block
        draws: number of draws of all vectors
    """
    vectors = unit_vectors(n, d, draws, seed)
    best = (vectors @ vectors.mT).amin(-1)
    full = found_share(best, least_products(vectors, Mask()))
    layers = range(1, LAYERS[-1] + 1)
    shares = shares_by_layer(vectors, random, seed)
    expected = [by_chance(n, random, layer) for layer in layers]
    yield equal("share found by full attention in one layer", full, 1)
    yield at_most("share found by BigBird in one layer", shares[0], 0.5)
    for layer in LAYERS:
        name, p = f"share found by BigBird, layers: {layer}", expected[layer - 1]
        # Six standard errors instead of four, since neighbors in a block are correlated.
        yield equal(name, shares[layer - 1], p, within=6 * share_error(p, best.numel()))
    curves = (
        series(layers, expected, "BigBird", color=0),
        series(layers, shares, style="dots", color=0),
        series(layers, [1] * len(layers), "full attention", color=1),
    )
    yield chart(*curves, x="layers", y="share found", y_limits=(0, 1.05))


def unit_vectors(n: int, d: int, draws: int, seed: int) -> Float[Tensor, "draws 1 n d"]:
    """Draw vectors uniformly on the sphere."""
    vectors = normal(seed, draws, 1, n, d)
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True)
    return unit


def shares_by_layer(vectors: Float[Tensor, "draws 1 n d"], random: int, seed: int) -> list[float]:
    """Return the share found by BigBird after each layer, each with its own random blocks."""
    best = (vectors @ vectors.mT).amin(-1)
    carried, shares = torch.full_like(best, math.inf), []
    sizes = {"block_size": _BLOCK, "window": 2 * _SIDE + 1, "random": random, "global_blocks": 1}
    for layer in range(LAYERS[-1]):
        blocks = BigBird(max_keys=best.shape[-1], seed=seed + layer, **sizes)
        pattern = blocks.pattern(1, best.shape[-1], causal=False, device=best.device)
        carried = torch.minimum(carried, least_products(vectors, pattern))
        shares.append(found_share(best, carried))
    return shares


def least_products(vectors: Float[Tensor, "draws 1 n d"], mask: Mask) -> Float[Tensor, "draws 1 n"]:
    """Return the product of each vector with the furthest among those that a mask allows."""
    gathered: Tensor = Argmax()(-vectors, vectors, vectors, mask=mask)
    return (vectors * gathered).sum(-1)


def found_share(best: Float[Tensor, "draws 1 n"], products: Float[Tensor, "draws 1 n"]) -> float:
    """Return the share of vectors whose furthest was found, up to rounding of the product."""
    return float((products <= best + 1e-12).double().mean())


def by_chance(n: int, random: int, layers: int) -> float:
    """Return the expected share if each of the n − 1 others is equally likely to be furthest."""
    count = -(-n // _BLOCK)
    place = np.arange(count)
    fixed = np.minimum(place + _SIDE + 1, count) - np.maximum(place - _SIDE, 0)
    fixed += place - _SIDE > 0  # the global block, if outside the window
    fixed[0] = count  # the global block attends to all
    rest = count - fixed
    per_layer = np.minimum(random / np.maximum(rest, 1), 1)
    attended = fixed + rest * (1 - (1 - per_layer) ** layers)
    return float((attended * _BLOCK - 1).mean() / (n - 1))
