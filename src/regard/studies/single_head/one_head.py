"""One head: queries that select one key or two, and its computation step by step."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, SupportsFloat, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Softmax
from regard.errors import UserError
from regard.studies.figure import Chart, Line, bars, chart, figure, formula_chart
from regard.studies.finding import at_least, at_most, equal, look_inside, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import Rows, matrix, normal, vector_text

Matrix: TypeAlias = Annotated[Rows, Meta(min_length=1)]
KEYS = (4, 10, 100, 1000)
"""Numbers of keys in the figures."""
DRAWS = 100
"""Number of draws of random keys and values."""
GRID = [i / 4 for i in range(61)]
"""Margins and lengths in the figures."""
ROUNDING = 1e-12
"""Relative rounding error of products in another order."""
ATTEND = Softmax(scaled=False)
Head: TypeAlias = tuple[
    Float[Tensor, "draws 1 1 d"], Float[Tensor, "draws 1 n d"], Float[Tensor, "draws 1 n e"]
]
"""Query, keys and values."""
Dots: TypeAlias = Mapping[int, Mapping[float, SupportsFloat]]
"""Measured values by number of keys, and by margin or length."""


@study()
def copying(
    n: Annotated[int, Meta(ge=2, le=1024)] = 10,
    m: Annotated[float, Meta(ge=0, le=50)] = 8.0,
    d: Annotated[int, Meta(ge=8, le=64)] = 16,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""When does attention copy one of its values?

    When q·k_j exceeds all other products by a margin at which the n − 1 other keys together get at
    most a hundredth of the weight: c ≈ v_j.

    $$ \alpha_j \ge \frac{1}{1 + (n - 1) e^{-m}}, \quad m = k_j^\top q - \max_{i \ne j} k_i^\top q
    $$

    The error is the distance of the output from v_j, relative to the farthest other value.

    Figure. Error of the copy against the margin. It falls exponentially; more keys need a larger
    margin. Lines: bound of the formula. Dots, all below their line: largest error in {draws} draws
    of {n} random keys. Dotted: a hundredth, and the margin.

    Args:
        n: number of keys
        m: margin of k_j·q over the others
        d: length of keys and values
    """
    bound, weight = selected_weight(n, m, selected=1), key_weights(n, m, selected=1)[0]
    query, key, value = heads = draw_heads(n, d, seed)
    weights, errors = copied(heads, m)
    yield equal("weight of v_j, other scores equal", weight, bound, within=1e-12)
    yield at_most("weight of all others, other scores equal", 1 - weight, 0.01)
    yield at_least("smallest weight of v_j, random keys", weights.min(), bound - 1e-8)
    name = "largest ‖c − v_j‖ relative to the farthest value, random keys"
    yield at_most(name, errors.max(), 0.01)
    measured = {n: {s: copied(heads, s)[1].max() for s in GRID[::4]}}
    margin = Line(x=m, label=f"margin {m:g}")
    by_margin = _other_weight(1, n, measured, margin, x="margin", y="error of the copy")
    yield figure(by_margin, draws=DRAWS)
    title = f"a query with a margin of {m:g} for one of {n} random keys"
    yield _look_inside((m * query[:1], key[:1], value[:1]), title)


def draw_heads(n: int, d: int, seed: int) -> Head:
    """Draw keys and values, and make queries whose product with k₁ has a margin of 1.

    Keys have length 1, so that k₁ has the largest product with itself.
    """
    key, value = normal(seed, 2, DRAWS, 1, n, d)
    key = key / key.norm(dim=-1, keepdim=True)
    first = key[:, :, :1]
    margin = 1 - (first @ key[:, :, 1:].mT).amax(-1, keepdim=True)
    return first / margin, key, value


def copied(heads: Head, m: float) -> tuple[Float[Tensor, " draws"], Float[Tensor, " draws"]]:
    """Return the weight of v₁ at margin m, and ‖c − v₁‖ relative to the farthest value."""
    query, key, value = heads
    first = value[:, 0, 0]
    farthest = (value[:, 0] - first[:, None]).norm(dim=-1).amax(-1)
    error = (ATTEND(m * query, key, value)[:, 0, 0] - first).norm(dim=-1)
    return ATTEND.weights(m * query, key)[:, 0, 0, 0], error / farthest


@study()
def averaging(
    n: Annotated[int, Meta(ge=3, le=2048)] = 10,
    t: Annotated[float, Meta(ge=0, le=50)] = 8.0,
) -> EvidenceParts:
    r"""Which query makes attention return the average of two of its values?

    With orthonormal keys, q = t(k_a + k_b) gives v_a and v_b at least 0.99 of the weight, half
    each: c ≈ ½(v_a + v_b).

    $$ \alpha_a = \alpha_b = \frac{e^t}{2 e^t + n - 2} $$

    Weights of orthonormal keys are compared with the formula.

    Figure. Weight of all other values against t. It falls exponentially; more keys need a larger t.
    Lines: formula. Dots: measured. Dotted: a hundredth, and t.

    Args:
        n: number of keys
        t: length of the query along each key
    """
    weights, predicted = key_weights(n, t, selected=2), selected_weight(n, t, selected=2)
    yield equal("weight of v_a", weights[0], predicted, within=1e-12)
    yield equal("weight of v_b", weights[1], predicted, within=1e-12)
    yield at_most("weight of all others", weights[2:].sum(), 0.01)
    measured = {
        count: {s: key_weights(count, s, 2)[2:].sum() for s in GRID[::8]} for count in {*KEYS, n}
    }
    length = Line(x=t, label=f"$t$ = {t:g}")
    yield _other_weight(2, n, measured, length, x="$t$", y="weight of all other values")
    query, key = orthonormal_keys(n, t, selected=2)
    yield _look_inside((query, key, key), f"the query {t:g}(k₁ + k₂) among {n} keys")


def orthonormal_keys(
    n: int, t: float, selected: int
) -> tuple[Float[Tensor, "1 1 1 n"], Float[Tensor, "1 1 n n"]]:
    """Return n orthonormal keys, and a query of length t along each of the first, `selected`."""
    keys = torch.eye(n, dtype=torch.float64)[None, None]
    return t * keys[:, :, :selected].sum(2, keepdim=True), keys


def key_weights(n: int, t: float, selected: int) -> Float[Tensor, " n"]:
    """Return the weights of these keys."""
    return ATTEND.weights(*orthonormal_keys(n, t, selected)).flatten()


def selected_weight(n: int, t: float, selected: int) -> float:
    """Return the formula's weight of each selected key, whose scores are larger by t.

    It is a lower bound if other scores are still smaller.
    """
    return 1 / (selected + (n - selected) * math.exp(-t))


def _other_weight(selected: int, n: int, measured: Dots, chosen: Line, **axes: str) -> Chart:
    """Return the weight of all other keys by the formula, with values measured for some n."""

    def others(count: int, t: float) -> float:
        return 1 - selected * selected_weight(count, t, selected)

    return formula_chart(
        GRID,
        {f"{count} keys": partial(others, count) for count in sorted({*KEYS, n})},
        {f"{count} keys": dots for count, dots in measured.items()},
        Line(y=0.01, label="a hundredth"),
        chosen,
        y_scale="log",
        y_limits=(1e-6, 1.5),
        **axes,
    )


def _look_inside(head: Head, title: str) -> dict[str, Any] | None:
    keys = [f"k{i}" for i in range(1, head[1].shape[2] + 1)]
    return look_inside(ATTEND, *head, queries=["q"], keys=keys, title=title)


@study()
def products(
    h: Matrix = ((5.0, 1.0), (4.0, 3.0), (-2.0, 6.0)),
    w_q: Matrix = ((1.0, 0.0), (2.0, 9.0)),
    w_k: Matrix = ((0.0, 1.0), (6.0, 0.0)),
    w_v: Matrix = ((4.0, 3.0), (9.0, 1.0)),
    i: Annotated[int, Meta(ge=1)] = 2,
) -> EvidenceParts:
    r"""What is the output of a head for the second of three states, step by step?

    Softmax over these scores equals argmax: the largest score gets all the weight except a
    billionth, and the output is its value.

    $$ h'_2 = \sum_j \alpha_j W_v h_j, \quad \alpha = \mathrm{softmax}_j \left((W_q h_2)^\top W_k
    h_j\right) $$

    Scores and output are compared with products in another order.

    Figure. Left: the scores {shown}. Right: the weights, softmax of these scores.

    Args:
        h: states, each in brackets
        w_q: W_q, each row in brackets
        w_k: W_k, each row in brackets
        w_v: W_v, each row in brackets
        i: state of the query, from 1
    """
    states, queries, keys, values = _projected(h, w_q, w_k, w_v, i)
    heads = [x[None, None] for x in (queries, keys, values)]
    scores, weights = keys @ queries[i - 1], ATTEND.weights(*heads[:2])[0, 0, i - 1]
    hard = Argmax(scaled=False)(*heads)[0, 0, i - 1]
    expected = np.array(h) @ np.transpose(w_k) @ w_q @ h[i - 1]
    largest = np.abs(h) @ np.abs(w_k).T @ np.abs(w_q) @ np.abs(h[i - 1])  # without cancellation
    for j, score in enumerate(expected):
        yield equal(f"score of state {j + 1}", scores[j], score, ROUNDING * largest[j])
    best = h[expected.argmax()]
    for e, entry in enumerate(np.array(w_v) @ best):
        within = ROUNDING * (np.abs(w_v) @ np.abs(best))[e]
        yield equal(f"output, entry {e + 1}, by argmax", hard[e], entry, within)
    yield at_least("largest weight by softmax", weights.max(), 1 - 1e-9)
    rows: list[tuple[Any, ...]] = []
    for j, (score, weight) in enumerate(zip(scores.tolist(), weights.tolist(), strict=True)):
        texts = (vector_text(each[j]) for each in (states, queries, keys, values))
        rows.append((j + 1, *texts, score, weight, vector_text(weight * values[j])))
    rows.append(("sum", *[""] * 5, float(weights.sum()), vector_text(weights @ values)))
    columns = ["state", "h", "query", "key", "value", "score", "weight", "weight · value"]
    yield table(columns, rows)
    names = [f"state {j}" for j in range(1, len(h) + 1)]
    yield figure(
        chart(bars(scores), names=names, title="scores"),
        chart(bars(weights, color=1), names=names, title="weights", y_limits=(0, 1.05)),
        shown=", ".join(f"{score:g}" for score in scores.tolist()),
    )
    names = [f"h{j}" for j in range(1, len(h) + 1)]
    title = "attention of each state to all states"
    yield look_inside(ATTEND, *heads, queries=names, keys=names, title=title)


def _projected(h: Rows, w_q: Rows, w_k: Rows, w_v: Rows, i: int) -> tuple[Tensor, ...]:
    """Return states, queries, keys and values as rows.

    Raises:
        UserError: the sizes don't fit.
    """
    if i > len(h):
        raise UserError(f"products: i = {i}, but there are {len(h)} states; use at most {len(h)}")
    states, height = matrix("products: h", h), len(w_q)
    width = states.shape[1]
    named = {"w_q": (w_q, height), "w_k": (w_k, height), "w_v": (w_v, None)}
    maps = (matrix(f"products: {name}", *sized, width) for name, sized in named.items())
    return states, *(states @ each.T for each in maps)
