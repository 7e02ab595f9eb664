"""The graph of BigBird's blocks."""

import math
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from msgspec import Meta
from scipy.sparse.csgraph import shortest_path

from regard.attention import BigBird
from regard.studies.costs import exponent
from regard.studies.figure import figure, heat_map, log_chart
from regard.studies.finding import at_least, at_most, equal, table
from regard.studies.study import EvidenceParts, Seed, study

Graph = Bool[np.ndarray, "queries keys"]
SIZES = (32, 64, 128, 256)
"""Numbers of blocks for the comparison of spectral gaps."""


class Shape(NamedTuple):
    """Properties of a graph."""

    mean_path: float
    diameter: int
    """Number of layers after which every block can depend on every other."""
    gap: float
    edges: int


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
    layer carries information along one edge, so the longest of all shortest paths is the number of
    layers after which every block can depend on every other. The spectral gap determines the mixing
    time of a random walk along the edges, in both directions: about 1/gap steps (Zaheer et al.,
    2020, section 2).

    Figure. Left: blocks attended by the first blocks: a diagonal band, random dots, and a full row
    and column for a global block. Right: spectral gap against the number of blocks (dots:
    measured). It falls quadratically for a window alone, little with random blocks, and hardly with
    a global one.

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
    shapes = {name: shape(edges) for name, edges in graphs.items()}
    by_size = {
        name: [gap(graph(size, side, *counts, seed)) for size in SIZES]
        for name, counts in kinds.items()
    }
    longest = {name: each.diameter for name, each in shapes.items()}
    yield equal("longest path, window", longest["window"], math.ceil((n - 1) / side))
    yield equal("longest path, with a global block", longest["window, global"], 2)
    yield at_most("longest path, with random blocks", longest["window, random"], 2 * math.log2(n))
    slopes = {name: exponent(SIZES, row) for name, row in by_size.items()}
    yield equal("exponent of the gap, window", slopes["window"], -2, within=0.25)
    yield at_least("exponent of the gap, with a global block", slopes["window, global"], -0.5)
    yield at_least("exponent of the gap, with random blocks", slopes["window, random"], -0.5)
    yield at_least("gap, all three", shapes["all three"].gap, 0.1)
    rows = [(name, x.edges, x.mean_path, x.diameter, x.gap) for name, x in shapes.items()]
    yield table(["blocks", "edges", "mean path", "longest path", "gap"], rows)
    axes = {"x": "block of keys", "y": "block of queries", "unit": "1 = attended"}
    yield figure(
        heat_map(graphs["all three"][:64, :64], title="pattern", **axes),
        log_chart(SIZES, by_size, title="spectral gap", x="blocks", y_limits=(1e-6, 2)),
    )


def graph(n: int, side: int, random: int, global_blocks: int, seed: int) -> Graph:
    """Return the blocks attended by each block of BigBird."""
    blocks = {"window": 2 * side + 1, "random": random, "global_blocks": global_blocks}
    attention = BigBird(block_size=1, max_keys=n, seed=seed, **blocks)
    pattern = attention.pattern(1, n, causal=False, device=torch.device("cpu"))
    edges: Graph = pattern.to_dense(n, n, torch.device("cpu"))[0, 0].numpy()
    return edges


def shape(edges: Graph) -> Shape:
    """Return the properties of a graph."""
    steps = shortest_path(edges, unweighted=True)
    others = ~np.eye(len(edges), dtype=bool)
    return Shape(
        mean_path=float(steps[others].mean()),
        diameter=int(steps.max()),
        gap=gap(edges),
        edges=int((edges & others).sum()),
    )


def gap(edges: Graph) -> float:
    """Return 1 − λ₂ of the random walk along the edges in both directions, with self-loops."""
    both = (edges | edges.T).astype(float)
    root = both.sum(1) ** -0.5
    return float(1 - np.linalg.eigvalsh(root[:, None] * both * root)[-2])
