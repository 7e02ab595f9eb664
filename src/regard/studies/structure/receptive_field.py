"""Receptive field of layers of argmax attention."""

import math
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Softmax
from regard.studies.figure import Chart, Line, Series, chart, series
from regard.studies.finding import at_most, equal
from regard.studies.study import EvidenceParts, Seed, study

Kind = Literal["argmax", "softmax"]
TRIALS = 20
"""Number of draws of random pointers."""


@study()
def receptive_field(
    heads: Annotated[int, Meta(ge=1, le=3)] = 2,
    layers: Annotated[int, Meta(ge=1, le=4)] = 4,
    inputs: Annotated[int, Meta(ge=2, le=300)] = 100,
    attention: Kind = "argmax",
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How many inputs can the state of a node depend on after n layers of argmax attention with k
    heads?

    With residuals, (k + 1)ⁿ paths end in a node, so it depends on at most (k + 1)ⁿ inputs.
    Well-chosen keys reach all of them, if there are as many inputs; random ones coincide, and reach
    fewer.

    $$ |R_n(i)| \leq (k + 1)^n, \quad R_n(i) = R_{n-1}(i) \cup \bigcup_{h=1}^k R_{n-1}(a_h(i)) $$

    Each input is marked by its own coordinate, so that the last state counts the paths from each
    input. The expected number for random pointers follows by recursion over layers.

    Figure. Inputs that a node depends on, for 1, 2 and 3 heads. Lines: paths that end in a node;
    dots: planted pointers, which reach the number of paths if there are as many inputs (dotted);
    dashes: expectation for random pointers, which coincide.

    Args:
        heads: k, heads
        layers: n, layers
        inputs: inputs, as many as nodes per layer
        attention: how a head attends to keys
    """
    bound = (heads + 1) ** layers
    draw = torch.Generator().manual_seed(seed)
    planted = paths(planted_pointers(heads, layers, inputs), attention)
    pointers = torch.randint(inputs, (TRIALS, layers, heads, inputs), generator=draw)
    random = torch.stack([field(paths(each, attention)) for each in pointers])
    mean, deviation = random_sizes(heads, layers, inputs)[-1]
    yield equal("paths that end in a node", planted.sum(-1).max(), bound, within=1e-9 * bound)
    yield equal("inputs of a node, planted pointers", field(planted).max(), bound)
    yield at_most("most inputs of a node, random pointers", random.max(), bound)
    # The mean over nodes, which share pointers, varies less than a single node.
    within = 4 * deviation / math.sqrt(TRIALS)
    yield equal("mean inputs of a node, random pointers", random.mean(), mean, within)
    yield equal("inputs whose key can change a pointer", winning_keys(inputs), inputs)
    yield _by_depth(layers, inputs)


def _by_depth(layers: int, inputs: int) -> Chart:
    """Return the inputs of a node by number of layers, for 1, 2 and 3 heads."""
    depth, curves = range(1, layers + 1), list[Series]()
    for k in (1, 2, 3):
        reached = [field(paths(planted_pointers(k, n, inputs), "argmax")).max() for n in depth]
        sizes = [size for size, _ in random_sizes(k, layers, inputs)]
        curves += [
            series(depth, [(k + 1) ** n for n in depth], f"$k$ = {k}", color=k - 1),
            series(depth, reached, style="dots", color=k - 1),
            series(depth, sizes, style="dashes", color=k - 1),
        ]
    axes: dict[str, Any] = {"x": "layers", "y": "inputs of a node", "x_ticks": list(depth)}
    return chart(*curves, Line(y=inputs, label="all inputs"), y_scale="log", **axes)


def planted_pointers(heads: int, layers: int, n: int) -> Int[Tensor, "layers heads n"]:
    """Return pointers of head h in layer l to h(k + 1)^(l − 1) places ahead, modulo n."""
    layer, head = torch.arange(layers)[:, None, None], torch.arange(1, heads + 1)[:, None]
    return (torch.arange(n) + head * (heads + 1) ** layer) % n


def paths(pointers: Int[Tensor, "layers heads n"], attention: Kind) -> Float[Tensor, "n n"]:
    """Return the number of paths from each input (column) to each node (row).

    Keys are unit vectors, and a query is the key that it points to. Inputs are marked by unit
    vectors too; each layer adds the output of its heads to them.
    """
    attend = Argmax() if attention == "argmax" else Softmax()
    units = marks = torch.eye(pointers.shape[-1], dtype=torch.float64)
    for pointer in pointers:
        marks = marks + attend(units[pointer][None], units[None, None], marks[None, None])[0].sum(0)
    return marks


def field(marks: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """Return the number of inputs of each node."""
    return marks.gt(0).sum(-1).double()


def winning_keys(n: int) -> int:
    """Return the number of inputs that win a pointer if their key becomes twice the query."""
    units = torch.eye(n, dtype=torch.float64)
    keys = units.repeat(n, 1, 1)
    keys[range(n), range(n)] = 2 * units[0]
    winners = Argmax().weights(units[:1].repeat(n, 1, 1)[:, None], keys[:, None]).argmax(-1)
    return int((winners.flatten() == torch.arange(n)).sum())


def random_sizes(heads: int, layers: int, n: int) -> list[tuple[float, float]]:
    """Return the exact mean and deviation of a node's field after each layer, random pointers."""
    grown, sizes = _growth(heads, n), np.arange(n + 1)
    chances, found = np.eye(n + 1)[1], []
    for _ in range(layers):
        chances = chances @ grown
        mean = float(chances @ sizes)
        found.append((mean, math.sqrt(float(chances @ (sizes - mean) ** 2))))
    return found


@cache
def _growth(heads: int, n: int) -> Float[np.ndarray, "before after"]:
    """Return the probability of each size after m of n nodes draw m·heads nodes at random."""
    seen = np.arange(n + 1) / n
    draws = np.linalg.matrix_power(np.diag(seen) + np.diag(1 - seen[:-1], 1), heads)
    chances, power = [], np.eye(n + 1)
    for size in range(n + 1):
        chances.append(power[size])
        power = power @ draws
    return np.array(chances)
