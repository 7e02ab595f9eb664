"""One query that finds one key, or two."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, SupportsFloat

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import Drawing, Line, Series, one_chart, series
from regard.studies.finding import EvidenceParts, at_least, at_most, equal, look_inside
from regard.studies.study import Seed, study
from regard.studies.tensors import normal

KEYS = (4, 10, 100, 1000)
"""Numbers of keys that are drawn."""
DRAWS = 100
"""How often random keys and values are drawn."""
GRID = [i / 4 for i in range(61)]
"""Margins and lengths that are drawn."""
ATTEND = Softmax(scaled=False)


@study()
def copying(
    n: Annotated[int, Meta(ge=2, le=1024)] = 10,
    m: Annotated[float, Meta(ge=0, le=50)] = 8.0,
    d: Annotated[int, Meta(ge=8, le=64)] = 16,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""When does attention copy one of its values?

    When q·k_j exceeds all other products by enough that the n − 1 other keys together get at most a
    hundredth of the weight: c ≈ v_j.

    $$ \alpha_j \ge \frac{1}{1 + (n - 1) e^{-m}}, \quad m = k_j^\top q - \max_{i \ne j} k_i^\top q
    $$

    Each other key has a weight at least e^m times smaller than that of k_j, because softmax
    turns differences of scores into ratios of weights. How large the products are doesn't matter,
    only by how much the best one leads; and it doesn't matter which values there are.

    What is left to the others is at most (n − 1)e^−m, and exactly that share where all of them have
    the same product. The output is off by that share of the way to the farthest other value, or by
    less. So the margin has to grow like the logarithm of the number of keys: m = ln n + 5 will do.

    Figure. The error of the copy falls exponentially with the margin; the more keys, the later.
    Lines: bound of the formula; dots, all below their line: largest error of {draws} draws of {n}
    random keys; dotted: a hundredth, and the margin.

    Args:
        n: keys
        m: margin of k_j·q over the others
        d: length of keys and values
    """
    bound, alike = least_weight(n, m), weight_among_equals(n, m)
    drawn = draw_heads(n, d, seed)
    weights, errors = copied(drawn, m)
    yield equal("weight of v_j, the others alike", alike, bound, within=1e-12)
    yield at_most("weight of all others, the others alike", 1 - alike, 0.01)
    yield at_least("least weight of v_j, random keys", weights.min(), bound - 1e-8)
    name = "largest ‖c − v_j‖, random keys, over the distance of the farthest value"
    yield at_most(name, errors.max(), 0.01)
    yield _figure(
        {*KEYS, n},
        lambda count, s: 1 - least_weight(count, s),
        {n: {s: copied(drawn, s)[1].max() for s in GRID[::4]}},
        Line(x=m, label=f"margin {m:g}"),
        x="margin",
        y="error of the copy",
        values={"draws": DRAWS},
    )
    yield _look_inside(
        (m * drawn.query[:1], drawn.key[:1], drawn.value[:1]),
        f"a query that leads to one of {n} random keys by {m:g}",
    )


class RandomHeads(NamedTuple):
    """Keys and values drawn at random, and queries that lead to the first key by a margin of 1."""

    query: Float[Tensor, "draws 1 1 d"]
    key: Float[Tensor, "draws 1 n d"]
    value: Float[Tensor, "draws 1 n d"]


def draw_heads(n: int, d: int, seed: int) -> RandomHeads:
    """Keys of length 1, so that none has a greater product with k₁ than k₁ itself."""
    key, value = normal(seed, 2, DRAWS, 1, n, d)
    key = key / key.norm(dim=-1, keepdim=True)
    first = key[:, :, :1]
    lead = 1 - (first @ key[:, :, 1:].mT).amax(-1, keepdim=True)
    return RandomHeads(first / lead, key, value)


def copied(heads: RandomHeads, m: float) -> tuple[Float[Tensor, " draws"], Float[Tensor, " draws"]]:
    """With margin m: the weight of v₁, and how far c is from it, over the farthest value's way."""
    query, key, value = heads
    first = value[:, 0, 0]
    farthest = (value[:, 0] - first[:, None]).norm(dim=-1).amax(-1)
    error = (ATTEND(m * query, key, value)[:, 0, 0] - first).norm(dim=-1)
    return ATTEND.weights(m * query, key)[:, 0, 0, 0], error / farthest


def weight_among_equals(n: int, m: float) -> float:
    """What the query m·k₁ gives to k₁, of n orthonormal keys."""
    keys = torch.eye(n, dtype=torch.float64)[None, None]
    return float(ATTEND.weights(m * keys[:, :, :1], keys)[0, 0, 0, 0])


def least_weight(n: int, m: float) -> float:
    """The formula: what the best of n keys gets at least, if it leads by m."""
    return 1 / (1 + (n - 1) * math.exp(-m))


@study()
def averaging(
    n: Annotated[int, Meta(ge=3, le=2048)] = 10,
    t: Annotated[float, Meta(ge=0, le=50)] = 8.0,
) -> EvidenceParts:
    r"""Which query makes attention return the average of two of its values?

    With orthonormal keys, q = t(k_a + k_b) gives v_a and v_b at least 0.99 of the weight, half
    each: c ≈ ½(v_a + v_b).

    $$ \alpha_a = \alpha_b = \frac{e^t}{2 e^t + n - 2} $$

    The query has the same product t with both keys and 0 with all others, so that both get the
    same weight, and each of the others e^t times less.

    It is not enough that t is more than 0: the others are n − 2, and together they take
    (n − 2)/(2e^t + n − 2) of the weight. The more keys there are, the longer the query has to be,
    but only as the logarithm of n: t = ln n + 4 always does.

    Figure. The weight of all values other than the two falls exponentially with t; the more keys,
    the later. Lines: formula; dots: measured; dotted: a hundredth, and t.

    Args:
        n: keys
        t: length of the query along each key
    """
    weights = pair_weights(n, t)
    predicted, counts = pair_weight(n, t), {*KEYS, n}
    query, key = pair(n, t)
    yield equal("weight of v_a", weights[0], predicted, within=1e-12)
    yield equal("weight of v_b", weights[1], predicted, within=1e-12)
    yield at_most("weight of all others", weights[2:].sum(), 0.01)
    yield _figure(
        counts,
        lambda count, s: 1 - 2 * pair_weight(count, s),
        {count: {s: pair_weights(count, s)[2:].sum() for s in GRID[::8]} for count in counts},
        Line(x=t, label=f"t = {t:g}"),
        x="t",
        y="weight of all other values",
    )
    yield _look_inside((query, key, key), f"the query {t:g}(k₁ + k₂) among {n} keys")


def pair(n: int, t: float) -> tuple[Float[Tensor, "1 1 1 n"], Float[Tensor, "1 1 n n"]]:
    """The query t(k₁ + k₂), and n orthonormal keys."""
    keys = torch.eye(n, dtype=torch.float64)
    query = t * (keys[0] + keys[1])
    return query.view(1, 1, 1, n), keys.view(1, 1, n, n)


def pair_weights(n: int, t: float) -> Float[Tensor, " n"]:
    """What that query gives to each of the keys."""
    return ATTEND.weights(*pair(n, t)).flatten()


def pair_weight(n: int, t: float) -> float:
    """The same of one of the two keys, by the formula."""
    return 1 / (2 + (n - 2) * math.exp(-t))


Formula = Callable[[int, float], float]
"""A prediction from the number of keys and a margin or length."""
Dots = Mapping[int, Mapping[float, SupportsFloat]]
"""Measured values by number of keys, and by margin or length."""


def by_keys(
    x: Sequence[float], counts: Iterable[int], predicted: Formula, measured: Dots
) -> list[Series]:
    """Return a line of predictions for each number of keys, with dots where it was measured."""
    curves = []
    for i, count in enumerate(sorted(counts)):
        line = [predicted(count, value) for value in x]
        curves.append(series(x, line, f"{count} keys", color=i))
        if dots := measured.get(count):
            curves.append(series(dots.keys(), dots.values(), style="dots", color=i))
    return curves


def _figure(
    counts: Iterable[int], predicted: Formula, measured: Dots, chosen: Line, **labels: Any
) -> Drawing:
    return one_chart(
        *by_keys(GRID, counts, predicted, measured),
        Line(y=0.01, label="a hundredth"),
        chosen,
        y_scale="log",
        y_limits=(1e-6, 1.5),
        **labels,
    )


def _look_inside(
    head: tuple[Float[Tensor, "1 1 1 d"], Float[Tensor, "1 1 n d"], Float[Tensor, "1 1 n e"]],
    title: str,
) -> dict[str, Any] | None:
    keys = [f"k{i}" for i in range(1, head[1].shape[2] + 1)]
    return look_inside(ATTEND, *head, queries=["q"], keys=keys, title=title)
