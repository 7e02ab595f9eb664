"""One query that finds one key."""

import math
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.explorer.look import look_at_attention
from regard.studies.figure import Chart, Figure, Line, series
from regard.studies.finding import Evidence, at_least, at_most, equal, if_readable, table
from regard.studies.study import Seed, study

KEYS = (4, 10, 100, 1000)
"""Numbers of keys that are drawn."""
DRAWS = 100
"""How often random keys and values are drawn."""


@study(
    asked=["practical-4 2.a", "eecs182-disc8 2.d"],
    question="When does attention copy one of its values?",
    claim="When q·k_j exceeds all other products by enough that the n − 1 other keys together"
    " get at most a hundredth of the weight: c ≈ v_j.",
    formula=r"\alpha_j \ge \frac{1}{1 + (n - 1) e^{-m}}, \quad "
    r"m = k_j^\top q - \max_{i \ne j} k_i^\top q",
)
def copying(
    n: Annotated[int, Meta(ge=2, le=1024, description="keys")] = 10,
    m: Annotated[float, Meta(ge=0, le=50, description="margin of k_j·q over the others")] = 8.0,
    d: Annotated[int, Meta(ge=8, le=64, description="length of keys and values")] = 16,
    seed: Seed = 0,
) -> Evidence:
    """Each other key has a weight at least e^m times smaller than that of k_j, because softmax
    turns differences of scores into ratios of weights. How large the products are doesn't matter,
    only by how much the best one leads; and it doesn't matter which values there are.

    What is left to the others is at most (n − 1)e^−m, and exactly that share where all of them have
    the same product. The output is off by that share of the way to the farthest other value, or by
    less. So the margin has to grow like the logarithm of the number of keys: m = ln n + 5 will do.
    """
    bound, alike = least_weight(n, m), weight_among_equals(n, m)
    drawn = draw_heads(n, d, seed)
    weights, errors = copied(drawn, m)
    return Evidence(
        numbers=(
            equal("weight of v_j, the others alike", alike, bound, within=1e-12),
            at_most("weight of all others, the others alike", 1 - alike, 0.01),
            at_least("least weight of v_j, random keys", weights.min(), bound - 1e-8),
            at_most(
                "largest ‖c − v_j‖, random keys, over the distance of the farthest value",
                errors.max(),
                0.01,
            ),
        ),
        figure=_figure(n, m, drawn),
        table=table(
            ["keys", "margin that leaves a hundredth to the others"],
            [(count, math.log((count - 1) * 99)) for count in sorted({*KEYS, n})],
        ),
        explorer_view=if_readable(
            look_at_attention(
                Softmax(scaled=False),
                m * drawn.query[:1],
                drawn.key[:1],
                drawn.value[:1],
                queries=["q"],
                keys=[f"k{i}" for i in range(1, n + 1)],
                title=f"a query that leads to one of {n} random keys by {m:g}",
            )
        ),
    )


class RandomHeads(NamedTuple):
    """Keys and values drawn at random, and queries that lead to the first key by a margin of 1."""

    query: Float[Tensor, "draws 1 1 d"]
    key: Float[Tensor, "draws 1 n d"]
    value: Float[Tensor, "draws 1 n d"]


def draw_heads(n: int, d: int, seed: int) -> RandomHeads:
    """Keys of length 1, so that none has a greater product with k₁ than k₁ itself."""
    generator = torch.Generator().manual_seed(seed)
    key, value = torch.randn(2, DRAWS, 1, n, d, generator=generator, dtype=torch.float64)
    key = key / key.norm(dim=-1, keepdim=True)
    first = key[:, :, :1]
    lead = 1 - (first @ key[:, :, 1:].mT).amax(-1, keepdim=True)
    return RandomHeads(first / lead, key, value)


def copied(heads: RandomHeads, m: float) -> tuple[Float[Tensor, " draws"], Float[Tensor, " draws"]]:
    """With margin m: the weight of v₁, and how far c is from it, over the farthest value's way."""
    query, key, value = heads
    attend = Softmax(scaled=False)
    first = value[:, 0, 0]
    farthest = (value[:, 0] - first[:, None]).norm(dim=-1).amax(-1)
    error = (attend(m * query, key, value)[:, 0, 0] - first).norm(dim=-1)
    return attend.weights(m * query, key)[:, 0, 0, 0], error / farthest


def weight_among_equals(n: int, m: float) -> float:
    """What the query m·k₁ gives to k₁, of n orthonormal keys."""
    keys = torch.eye(n, dtype=torch.float64)
    query = m * keys[0]
    weights = Softmax(scaled=False).weights(query.view(1, 1, 1, n), keys.view(1, 1, n, n))
    return float(weights[0, 0, 0, 0])


def least_weight(n: int, m: float) -> float:
    """The formula: what the best of n keys gets at least, if it leads by m."""
    return 1 / (1 + (n - 1) * math.exp(-m))


def _figure(n: int, m: float, heads: RandomHeads) -> Figure:
    margins = [i / 4 for i in range(61)]
    curves = []
    for i, count in enumerate(sorted({*KEYS, n})):
        predicted = [1 - least_weight(count, s) for s in margins]
        curves.append(series(margins, predicted, f"{count} keys", color=i))
        if count == n:
            measured = [copied(heads, s)[1].max() for s in margins[::4]]
            curves.append(series(margins[::4], measured, style="dots", color=i))
    chart = Chart(
        series=curves,
        lines=[Line(y=0.01, label="a hundredth"), Line(x=m, label=f"margin {m:g}")],
        x="margin",
        y="error of the copy",
        y_scale="log",
        y_limits=(1e-6, 1.5),
    )
    return Figure(
        panels=[chart],
        caption="The error of the copy falls exponentially with the margin; the more keys, the "
        f"later. Lines: bound of the formula; dots, all below their line: largest error of {DRAWS} "
        f"draws of {n} random keys; dotted: a hundredth, and the margin.",
    )
