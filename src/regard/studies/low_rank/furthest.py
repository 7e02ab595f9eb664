"""The task that needs full attention."""

import math
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Mask
from regard.studies.figure import one_chart, series
from regard.studies.finding import EvidenceParts, at_most, equal
from regard.studies.low_rank.blocks import big_bird
from regard.studies.study import Seed, study
from regard.studies.tensors import normal

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
    r"""What can one layer of full attention do that sparse attention can't?

    One layer of full attention finds, for each of n vectors, the one furthest from it. BigBird
    finds it only for queries whose mask contains it, a fixed share per layer, and more with more
    layers.

    $$ j^*(i) = \operatorname{argmax}_j \|u_j - u_i\|^2 = \operatorname{argmax}_j \left(-u_i \cdot
    u_j\right), \quad \|u_j\| = 1 $$

    The vectors have length 1, so that the furthest is the one with the smallest product. A head
    with the query −u, the key u and the value u finds it if it sees all: here by argmax, which
    softmax nears as queries grow.

    BigBird sees the blocks beside a query, the global one and a few random ones. The furthest
    vector may be anywhere, and is found with the probability that its block is looked at. With
    more layers, each with random blocks of its own and the best so far kept, the rest is found as
    1 − (1 − r)^layers, where r is the share of the rest that a layer shows. That paths are short
    is no help: word of each vector gets through in two steps, but a vector has no room for word of
    all n.

    That is no weakness of this scheme alone. Zaheer et al., 2020, section 3.4, prove that with
    about n edges any attention needs about n layers for this task, if the orthogonal vectors
    conjecture is true. Given enough layers BigBird is as powerful as full attention: it can
    approximate any continuous function of a sequence, and is Turing complete (sections 3.2, 3.3).

    Figure. Share of vectors whose furthest is found, against the number of layers: 1 from the first
    layer on with full attention; with BigBird a small share at first, which approaches 1. Lines:
    formula; dots: measured.

    Args:
        n: vectors, on the unit sphere
        d: their width
        random: random blocks of each block
        draws: draws of all vectors
    """
    vectors = unit_vectors(n, d, draws, seed)
    best = (vectors @ vectors.mT).amin(-1)
    full = found_share(best, least_products(vectors, Mask()))
    carried = torch.full_like(best, math.inf)
    shares = []
    for layer in range(LAYERS[-1]):
        blocks = big_bird(n, block=_BLOCK, random=random, seed=seed + layer)
        pattern = blocks.pattern(1, n, causal=False, device=best.device)
        carried = torch.minimum(carried, least_products(vectors, pattern))
        shares.append(found_share(best, carried))
    expected = [by_chance(n, random, layer + 1) for layer in range(LAYERS[-1])]
    yield equal("found by full attention in one layer", full, 1)
    yield at_most("found by BigBird in one layer", shares[0], 0.5)
    for layer in LAYERS:
        share, predicted = shares[layer - 1], expected[layer - 1]
        # Six standard errors of independent draws, which neighbors in a block aren't quite.
        within = 6 * math.sqrt(predicted * (1 - predicted) / best.numel())
        yield equal(f"found by BigBird, layers: {layer}", share, predicted, within)
    layers = range(1, LAYERS[-1] + 1)
    yield one_chart(
        series(layers, expected, "BigBird", color=0),
        series(layers, shares, style="dots", color=0),
        series(layers, [1] * len(layers), "full attention", color=1),
        x="layers",
        y="furthest vectors found",
        y_limits=(0, 1.05),
    )


def unit_vectors(n: int, d: int, draws: int, seed: int) -> Float[Tensor, "draws 1 n d"]:
    """Uniform on the sphere."""
    vectors = normal(seed, draws, 1, n, d)
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True)
    return unit


def least_products(vectors: Float[Tensor, "draws 1 n d"], mask: Mask) -> Float[Tensor, "draws 1 n"]:
    """The product of each vector with the one that attention finds furthest under a mask."""
    gathered: Tensor = Argmax()(-vectors, vectors, vectors, mask=mask)
    return (vectors * gathered).sum(-1)


def found_share(best: Float[Tensor, "draws 1 n"], products: Float[Tensor, "draws 1 n"]) -> float:
    """The share of vectors whose furthest was found, up to rounding of the product."""
    return float((products <= best + 1e-12).double().mean())


def by_chance(n: int, random: int, layers: int) -> float:
    """The share expected, where the furthest is any of the n − 1 others alike."""
    count = -(-n // _BLOCK)
    place = np.arange(count)
    fixed = np.minimum(place + _SIDE + 1, count) - np.maximum(place - _SIDE, 0)
    fixed += place - _SIDE > 0  # the global block, where the window doesn't show it
    fixed[0] = count  # and looks at all
    rest = count - fixed
    shown = np.minimum(random / np.maximum(rest, 1), 1)
    looked_at = fixed + rest * (1 - (1 - shown) ** layers)
    return float((looked_at * _BLOCK - 1).mean() / (n - 1))
