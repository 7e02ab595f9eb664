"""How many inputs a node holds after some layers of argmax attention."""

import math
from functools import cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Softmax
from regard.drawing import INK, panels
from regard.studies.finding import Drawing, Evidence, at_most, drawing, equal, table
from regard.studies.study import Correction, study

TRIALS = 20
"""Draws of random pointers."""


class Size(NamedTuple):
    """Of a field that is random."""

    mean: float
    deviation: float


@study(
    asked=["eecs182-transformers e"],
    question="How many inputs can the state of a node depend on after n layers of argmax "
    "attention with k heads?",
    claim="With residuals, (k + 1)ⁿ paths end in a node, so it depends on at most (k + 1)ⁿ "
    "inputs. Well-chosen keys reach all of them, if there are as many; random ones "
    "coincide, and reach fewer.",
    formula=r"|R_n(i)| \leq (k + 1)^n, \quad R_n(i) = R_{n-1}(i) \cup "
    r"\bigcup_{h=1}^k R_{n-1}(a_h(i))",
    corrections=[
        Correction(
            course="eecs182-transformers",
            says="After n layers the receptive field has size 2ⁿ with one head, (k + 1)ⁿ with k.",
            right="So many paths end in a node; the inputs that they begin at are as many at most, "
            "and fewer where paths meet. And these are the inputs whose content arrives: which "
            "key wins depends on all keys, so that any input can change what a node points to.",
        )
    ],
)
def receptive_field(
    heads: Annotated[int, Meta(ge=1, le=3, description="k, heads")] = 2,
    layers: Annotated[int, Meta(ge=1, le=4, description="n, layers")] = 4,
    inputs: Annotated[
        int, Meta(ge=2, le=300, description="inputs, as many as nodes a layer")
    ] = 100,
    attention: Annotated[
        Literal["argmax", "softmax"], Meta(description="how a head attends to keys")
    ] = "argmax",
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of random pointers")] = 0,
) -> Evidence:
    """A head with argmax hands on the value of one key. Together with its residual a node then
    holds what it held and what k others held: k + 1 times as much as before, at most. What is
    counted here is what arrives if each input is marked by a coordinate of its own, so that the
    last state tells by how many paths each input came.

    If the heads of layer l point (k + 1)^(l−1), 2(k + 1)^(l−1), … places on, the places are the
    digits of a number in base k + 1, and no two paths begin at the same input. Pointers drawn at
    random meet: given m inputs, mk draws from N add those that weren't there yet, and the number
    that is expected after n layers follows step by step from this.

    That is about content. The choice of a key is another matter: changed enough, the key of any
    input at all wins.
    """
    bound = (heads + 1) ** layers
    draw = torch.Generator().manual_seed(seed)
    planted = paths(planted_pointers(heads, layers, inputs), attention)
    random = [
        field(paths(torch.randint(inputs, (layers, heads, inputs), generator=draw), attention))
        for _ in range(TRIALS)
    ]
    expected = random_sizes(heads, layers, inputs)[-1]
    return Evidence(
        numbers=(
            equal("paths that end in a node", planted.sum(-1).max(), bound, within=1e-9 * bound),
            equal("inputs of a node, planted pointers", field(planted).max(), bound),
            at_most("most inputs of a node, random pointers", max(x.max() for x in random), bound),
            equal(
                "mean inputs of a node, random pointers",
                np.mean([x.mean() for x in random]),
                expected.mean,
                # The mean over nodes, which share pointers, varies less than a single node.
                within=4 * expected.deviation / math.sqrt(TRIALS),
            ),
            equal("inputs whose key can turn a pointer", turners(inputs), inputs),
        ),
        figure=_drawn(layers, inputs),
        table=table(
            ["heads", "layers", "paths", "planted", "random, expected"],
            [
                (k, n, (k + 1) ** n, _planted(k, n, inputs), random_sizes(k, n, inputs)[-1].mean)
                for k in (1, 2, 3)
                for n in range(1, layers + 1)
            ],
        ),
    )


def planted_pointers(heads: int, layers: int, n: int) -> Int[Tensor, "layers heads n"]:
    """Head h of layer l points h(k + 1)^(l − 1) places on, round the end."""
    layer, head = torch.arange(layers)[:, None, None], torch.arange(1, heads + 1)[:, None]
    return (torch.arange(n) + head * (heads + 1) ** layer) % n


def paths(
    pointers: Int[Tensor, "layers heads n"], attention: Literal["argmax", "softmax"]
) -> Float[Tensor, "n n"]:
    """By how many paths each input (column) comes to each node (row).

    Keys are unit vectors, and a query is the key that it points to. Inputs are marked by unit
    vectors too; each layer adds to them what its heads gather.
    """
    attend = Argmax() if attention == "argmax" else Softmax()
    units = marks = torch.eye(pointers.shape[-1], dtype=torch.float64)
    for pointer in pointers:
        marks = marks + attend(units[pointer][None], units[None, None], marks[None, None])[0].sum(0)
    return marks


def field(marks: Float[Tensor, "n n"]) -> Float[Tensor, " n"]:
    """How many inputs come to each node."""
    return marks.gt(0).sum(-1).double()


def turners(n: int) -> int:
    """How many of n inputs draw a pointer to themselves by another key: twice the query."""
    units = torch.eye(n, dtype=torch.float64)
    keys = units.repeat(n, 1, 1)
    keys[range(n), range(n)] = 2 * units[0]
    winners = Argmax().weights(units[:1].repeat(n, 1, 1)[:, None], keys[:, None]).argmax(-1)
    return int((winners.flatten() == torch.arange(n)).sum())


def random_sizes(heads: int, layers: int, n: int) -> list[Size]:
    """Of a node's field after each layer with random pointers, exactly."""
    grown, sizes = _growth(heads, n), np.arange(n + 1)
    chances = np.eye(n + 1)[1]
    found = []
    for _ in range(layers):
        chances = chances @ grown
        mean = float(chances @ sizes)
        found.append(Size(mean, math.sqrt(float(chances @ (sizes - mean) ** 2))))
    return found


@cache
def _growth(heads: int, n: int) -> Float[np.ndarray, "before after"]:
    """The chance of each size after m nodes have drawn m·heads others of n, with replacement."""
    chances = np.eye(n + 1)
    new = 1 - np.arange(n + 1) / n
    for drawn in range(n * heads):
        still = np.arange(n + 1) * heads > drawn
        drawing_on = chances[still]
        stepped = drawing_on * (1 - new)
        stepped[:, 1:] += (drawing_on * new)[:, :-1]
        chances[still] = stepped
    return chances


def _planted(heads: int, layers: int, n: int) -> int:
    return int(field(paths(planted_pointers(heads, layers, n), "argmax")).max())


def _drawn(layers: int, inputs: int) -> Drawing:
    depth = np.arange(1, layers + 1)
    with panels() as (figure, (axes,)):
        for k in (1, 2, 3):
            color = f"C{k - 1}"
            axes.plot(depth, (k + 1.0) ** depth, color=color, label=f"k = {k}: paths")
            reached = [_planted(k, int(n), inputs) for n in depth]
            axes.plot(depth, reached, "o", color=color, label="planted pointers")
            expected = [size.mean for size in random_sizes(k, layers, inputs)]
            axes.plot(depth, expected, "x--", color=color, label="random pointers")
        axes.axhline(inputs, linestyle=":", color=INK, linewidth=1)
        axes.set(yscale="log", xlabel="layers", ylabel="inputs of a node", xticks=depth)
        axes.legend(fontsize=8, ncols=3)
        return drawing(
            figure,
            "Inputs that a node holds, by layers, for 1, 2 and 3 heads. Planted pointers reach the "
            "number of paths as long as there are so many inputs (dotted); random ones fall below.",
            name="receptive-field",
        )
