"""Approximations of softmax attention: their errors and costs, and what BigBird can't see."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from msgspec import Meta
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from regard.attention import (
    Argmax,
    Attention,
    BigBird,
    KernelAttention,
    Linformer,
    Mask,
    Shape,
    Softmax,
)
from regard.attention.feature_maps import FavorPositive
from regard.studies.costs import exponent, peak_bytes, seconds
from regard.studies.figure import chart, figure, heat_map, log_chart, series
from regard.studies.finding import Measurement, Measurements, at_least, at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import normal, relative_error, share_error, slow_walks

FEATURES = (64, 128, 256, 512)
LENGTHS = (512, 1024, 2048)
KEYS_PER_BLOCK = _D = 16
_DRAWS = 4
Graph = Bool[np.ndarray, "queries keys"]
SIZES = (32, 64, 128, 256)
"""Numbers of blocks for the comparison of spectral gaps."""
LAYERS = (1, 2, 4, 8, 16, 32)
BLOCK, SIDE = 8, 1
"""Tokens per block, and blocks of the window on either side, in the search for the furthest."""


Sample: TypeAlias = Float[Tensor, "3 1 1 n d"]
"""Slowly changing states, used as queries and keys; values; and outputs of softmax attention."""


class Costs(NamedTuple):
    """Costs of a mechanism, by number of tokens in `LENGTHS`."""

    operations: Sequence[int]
    milliseconds: Sequence[float]
    bytes: Sequence[int]


@study()
def approximations(
    n: Annotated[int, Meta(ge=512, le=2048)] = 1024,
    features: Annotated[int, Meta(ge=64, le=512, multiple_of=KEYS_PER_BLOCK)] = 128,
    spread: Annotated[float, Meta(gt=0, le=3)] = 0.35,
    reach: Annotated[float, Meta(ge=0, le=512)] = 32.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How accurate are Linformer, BigBird and Performer, and which costs do they reduce?

    Their operations grow linearly with the length, and their memory at most linearly. Those of
    softmax grow quadratically (its memory only if all weights are stored). Each is more accurate
    with more features.

    $$ \mathrm{error} = \frac{\|\hat{C} - C\|_F}{\|C\|_F}, \quad C = \mathrm{softmax}\left(\frac{Q
    K^\top}{\sqrt{d}}\right) V $$

    Each of Linformer's k rows is the mean of a segment (an option in section 4 of Wang et al.,
    2020). "Features" are Linformer's k rows, the keys to which a query of BigBird attends, and
    Performer's m random features. Linformer assumes that keys change slowly along the text (not
    with reach=0), Performer that queries and keys are short (not with spread=1).

    Figure. Left: time. It grows about quadratically with the length for softmax, or faster, and at
    most linearly for the others. Middle: memory. It grows quadratically for softmax written out,
    and at most linearly for the others. Right: errors fall with the number of features.

    Args:
        n: number of tokens in the comparison of features
        features: number of features in the comparison of lengths
        spread: standard deviation of the entries of queries and keys
        reach: number of tokens over which the inputs change
    """
    samples = [draw_sample(n, spread, reach, (seed, which)) for which in range(_DRAWS)]
    errors = {
        name: [error(make, m, samples) for m in FEATURES] for name, make in MECHANISMS.items()
    }
    longer = [draw_sample(length, spread, reach, (seed, 0)) for length in LENGTHS]
    costs = {
        name: Costs(*zip(*(measured(make, features, each) for each in longer), strict=True))
        for name, make in (MECHANISMS | EXACT).items()
    }
    for name, each in costs.items():
        yield from exponents(name, each)
    for name, row in errors.items():
        yield error_ratio(name, row)
    milliseconds = {name: each.milliseconds for name, each in costs.items()}
    memory = {name: each.bytes for name, each in costs.items()}
    yield figure(
        log_chart(LENGTHS, milliseconds, title="milliseconds", x="tokens"),
        log_chart(LENGTHS, memory, title="bytes", x="tokens"),
        log_chart(FEATURES, errors, title="relative error", x="features"),
    )


def draw_sample(n: int, spread: float, reach: float, seed: tuple[int, int]) -> Sample:
    """Draw a sample; `spread` is the standard deviation of the states, that of values is 1."""
    states, values = slow_walks(1, n, 2 * _D, reach=reach, seed=seed).split(_D, -1)
    states = spread * states
    return torch.stack([states, values, Softmax()(states, states, values)])


class Composed(Softmax):
    """Softmax attention that stores all weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **rest: object) -> Tensor:
        return self.weights(query, key) @ value


def pooled(n: int, k: int, _seed: int) -> Linformer:
    """Return a Linformer whose k rows are the means of k segments of n tokens."""
    attention = Linformer(length=n, k=k)
    row, token = torch.arange(n) * k // n, torch.arange(n)
    with torch.no_grad():
        for projection in (attention.project_key, attention.project_value):
            projection.zero_()
            projection[0, row, token] = 1 / row.bincount()[row].float()
    return attention


def blocks(n: int, keys: int, seed: int) -> BigBird:
    """Return a BigBird with a global block, a window of 3 and random blocks, in all `keys` keys."""
    random = max(keys // KEYS_PER_BLOCK - 4, 0)  # besides the window and the global block
    return bigbird(n, KEYS_PER_BLOCK, 1, random, 1, seed)


def bigbird(n: int, block: int, side: int, random: int, global_blocks: int, seed: int) -> BigBird:
    """Return a BigBird for n tokens, with a window of `side` blocks on either side."""
    pattern = {"window": 2 * side + 1, "random": random, "global_blocks": global_blocks}
    return BigBird(block_size=block, max_keys=n, seed=seed, **pattern)


def performer(_n: int, m: int, seed: int) -> KernelAttention:
    """Return a Performer with m positive random features."""
    return KernelAttention(FavorPositive(d=_D, features=m, seed=seed))


Maker = Callable[[int, int, int], Attention]
"""Function that makes a mechanism from a number of tokens, a number of features and a seed."""
EXACT: dict[str, Maker] = {
    "softmax, written out": lambda *_: Composed(),
    "softmax, fused": lambda *_: Softmax(),
}
MECHANISMS: dict[str, Maker] = {"Linformer": pooled, "BigBird": blocks, "Performer": performer}


@torch.inference_mode()
def error(make: Maker, features: int, samples: Sequence[Sample]) -> float:
    """Return ‖out − exact‖/‖exact‖ over all samples, each with its own random features."""
    outputs = []
    for seed, (states, values, _) in enumerate(samples):
        attention = make(states.shape[-2], features, seed).double()
        outputs.append(attention(states, states, values))
    return relative_error(torch.stack(outputs), torch.stack([exact for *_, exact in samples]))


def measured(make: Maker, features: int, sample: Sample) -> tuple[int, float, int]:
    """Return operations, milliseconds and bytes in float32."""
    states, values, _ = sample.float()
    n = states.shape[-2]
    attention = make(n, features, 0)
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=n, keys=n, d=_D, e=_D)
    call = partial(attention, states, states, values)
    return attention.cost(shape).operations, 1e3 * seconds(call), peak_bytes(call)


def exponents(mechanism: str, costs: Costs) -> Measurements:
    """Yield the exponents of operations and memory as powers of the length."""
    name, power = f"exponent of the length, {mechanism}", 2 if mechanism in EXACT else 1
    operations, memory = exponent(LENGTHS, costs.operations), exponent(LENGTHS, costs.bytes)
    yield equal(f"{name}: operations", operations, power, within=0.1)
    if mechanism == "softmax, written out":
        yield at_least(f"{name}: memory", memory, 1.8)
    else:
        yield at_most(f"{name}: memory", memory, 1.2)


def error_ratio(name: str, errors: Sequence[float]) -> Measurement:
    """Return the ratio of the error with the most features to that with the fewest."""
    ratio = errors[-1] / errors[0]
    return at_most(f"error of {name}, {FEATURES[-1]} / {FEATURES[0]} features", ratio, 0.7)


@study()
def block_graph(
    n: Annotated[int, Meta(ge=32, le=512)] = 128,
    side: Annotated[int, Meta(ge=1, le=4)] = 1,
    random: Annotated[int, Meta(ge=0, le=8)] = 3,
    global_blocks: Annotated[int, Meta(ge=0, le=4)] = 1,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How does information propagate between the blocks of BigBird?

    With windows alone, the longest path has (n − 1)/side steps, and the spectral gap falls as n⁻².
    Random blocks shorten paths to about the logarithm of n, a global block to 2. The gap is nearly
    constant with a global block. With three random blocks per block, it falls by about a fifth from
    32 to 256 blocks (seed 0).

    $$ \mathrm{gap} = 1 - \lambda_2\left(D^{-1/2} A D^{-1/2}\right) $$

    The nodes of the graph are blocks, with an edge from each block to those that it attends to. A
    random walk along the edges, in both directions, mixes in about 1/gap steps (Zaheer et al.,
    2020, section 2).

    Figure. Left: blocks attended by the first blocks: a diagonal band, random dots, and a full row
    and column for a global block. Right: spectral gap against the number of blocks. It falls
    quadratically for a window alone, little with random blocks, and hardly with a global one.

    Args:
        n: number of blocks
        side: number of blocks of the window on either side
        random: number of random blocks per block
        global_blocks: number of global blocks
        seed: seed of the random blocks
    """
    kinds = {
        "window": (0, 0),
        "window, random": (random, 0),
        "window, global": (0, global_blocks),
        "all three": (random, global_blocks),
    }
    graphs = {name: graph(n, side, *counts, seed) for name, counts in kinds.items()}
    longest = {name: longest_path(edges) for name, edges in graphs.items()}
    gaps = {
        name: [gap(graph(size, side, *counts, seed)) for size in SIZES]
        for name, counts in kinds.items()
    }
    slopes = {name: exponent(SIZES, row) for name, row in gaps.items()}
    yield equal("longest path, window", longest["window"], math.ceil((n - 1) / side))
    yield equal("longest path, with a global block", longest["window, global"], 2)
    yield at_most("longest path, with random blocks", longest["window, random"], 2 * math.log2(n))
    yield equal("exponent of the gap, window", slopes["window"], -2, within=0.25)
    yield at_least("exponent of the gap, with a global block", slopes["window, global"], -0.5)
    yield at_least("exponent of the gap, with random blocks", slopes["window, random"], -0.5)
    yield at_least("gap, all three", gap(graphs["all three"]), 0.1)
    axes = {"x": "block of keys", "y": "block of queries", "unit": "1 = attended"}
    yield figure(
        heat_map(graphs["all three"][:64, :64], title="pattern", **axes),
        log_chart(SIZES, gaps, title="spectral gap", x="blocks", y_limits=(1e-6, 2)),
    )


def graph(n: int, side: int, random: int, global_blocks: int, seed: int) -> Graph:
    """Return the blocks attended by each block of BigBird."""
    mask = bigbird_mask(n, 1, side, random, global_blocks, seed)
    edges: Graph = mask.to_dense(n, n, torch.device("cpu"))[0, 0].numpy()
    return edges


def bigbird_mask(n: int, *blocks: int) -> Mask:
    """Return the mask of n tokens; `blocks` are the other arguments of `bigbird`."""
    return bigbird(n, *blocks).pattern(1, n, causal=False, device=torch.device("cpu"))


def longest_path(edges: Graph) -> int:
    """Return the number of layers after which every block can depend on every other."""
    return int(shortest_path(edges, unweighted=True).max())


def gap(edges: Graph) -> float:
    """Return 1 − λ₂ of the random walk along the edges in both directions, with self-loops."""
    both = (edges | edges.T).astype(float)
    root = both.sum(1) ** -0.5
    return float(1 - np.linalg.eigvalsh(root[:, None] * both * root)[-2])


@study()
def furthest(
    n: Annotated[int, Meta(ge=64, le=512, multiple_of=BLOCK)] = 256,
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

    A head with the query −u, the key u and the value u finds the furthest vector by argmax. Each
    layer of BigBird has its own random blocks, and keeps the best vector so far: 1 − (1 − r)^layers
    of the rest is found, where r is the share of the rest that a layer attends to. Zaheer et al.
    (2020) prove that sparse attention with a global token is a universal approximator (section 3.2)
    and, in an encoder–decoder, Turing complete (3.3), and that any sparse attention of about n
    entries requires about n layers for this task in the worst case, if the orthogonal vectors
    conjecture is true (3.4).

    Figure. Share of vectors whose furthest is found, against the number of layers. Lines: formula.
    Dots: measured.

    Args:
        n: number of vectors on the unit sphere
        d: their width
        random: number of random blocks per block
        draws: number of draws of all vectors
    """
    vectors = F.normalize(normal(seed, draws, 1, n, d), dim=-1)
    best = (vectors @ vectors.mT).amin(-1)
    full = found_share(best, least_products(vectors, Mask()))
    masks = (bigbird_mask(n, BLOCK, SIDE, random, 1, seed + layer) for layer in range(LAYERS[-1]))
    products = accumulate((least_products(vectors, mask) for mask in masks), torch.minimum)
    layers, shares = range(1, LAYERS[-1] + 1), [found_share(best, each) for each in products]
    expected = [by_chance(n, random, layer) for layer in layers]
    yield equal("share found by full attention in one layer", full, 1)
    yield at_most("share found by BigBird in one layer", shares[0], 0.5)
    for layer in LAYERS:
        name, p = f"share found by BigBird, layers: {layer}", expected[layer - 1]
        # Six standard errors instead of four, since neighbors in a block are correlated.
        yield equal(name, shares[layer - 1], p, within=6 * share_error(p, best.numel()))
    lines = series(layers, expected, "BigBird"), series(layers, [1] * len(layers), "full attention")
    dots = series(layers, shares, style="dots", color=0)
    yield chart(*lines, dots, x="layers", y="share found", y_limits=(0, 1.05))


def least_products(vectors: Float[Tensor, "draws 1 n d"], mask: Mask) -> Float[Tensor, "draws 1 n"]:
    """Return the product of each vector with the furthest among those that a mask allows."""
    gathered: Tensor = Argmax()(-vectors, vectors, vectors, mask=mask)
    return (vectors * gathered).sum(-1)


def found_share(best: Float[Tensor, "draws 1 n"], products: Float[Tensor, "draws 1 n"]) -> float:
    """Return the share of vectors whose furthest was found, up to rounding of the product."""
    return float((products <= best + 1e-12).double().mean())


def by_chance(n: int, random: int, layers: int) -> float:
    """Return the expected share if each of the n − 1 others is equally likely to be furthest."""
    count = -(-n // BLOCK)
    place = np.arange(count)
    fixed = np.minimum(place + SIDE + 1, count) - np.maximum(place - SIDE, 0)
    fixed += place - SIDE > 0  # the global block, if outside the window
    fixed[0] = count  # the global block attends to all
    rest = count - fixed
    per_layer = np.minimum(random / np.maximum(rest, 1), 1)
    attended = fixed + rest * (1 - (1 - per_layer) ** layers)
    return float((attended * BLOCK - 1).mean() / (n - 1))
