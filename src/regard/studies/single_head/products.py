"""Queries, keys and values, product by product."""

from typing import Annotated, Any

from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Softmax
from regard.errors import UserError
from regard.studies.figure import bars, chart, figure
from regard.studies.finding import EvidenceParts, at_least, equal, look_inside, table
from regard.studies.study import study
from regard.studies.tensors import Rows, matrix, vector_text

_STATES = ((5.0, 1.0), (4.0, 3.0), (-2.0, 6.0))
_QUERY, _KEY, _VALUE = ((1.0, 0.0), (2.0, 9.0)), ((0.0, 1.0), (6.0, 0.0)), ((4.0, 3.0), (9.0, 1.0))
"""The numbers of the course."""


@study()
def products(
    h: Annotated[Rows, Meta(min_length=1)] = _STATES,
    w_q: Annotated[Rows, Meta(min_length=1)] = _QUERY,
    w_k: Annotated[Rows, Meta(min_length=1)] = _KEY,
    w_v: Annotated[Rows, Meta(min_length=1)] = _VALUE,
    i: Annotated[int, Meta(ge=1)] = 2,
) -> EvidenceParts:
    r"""What does a head compute for the second of three states, step by step?

    Softmax over these scores equals argmax: the largest score gets all the weight except a
    billionth, and the output is its value.

    $$ h'_2 = \sum_j \alpha_j W_v h_j, \quad \alpha = \mathrm{softmax}_j \left((W_q h_2)^\top W_k
    h_j\right) $$

    Each state h_j gives a key W_k h_j and a value W_v h_j; the one that asks gives a query
    W_q h_i. The score of j is the product of query and key; softmax turns scores into weights, and
    the output is the values' average by these weights.

    Scores that are hundreds apart leave softmax nothing to divide: e^−202 is 0 for all purposes,
    and its gradient too. That is why products are divided by √d, and why weights start small.

    Figure. Left: the scores {shown}. Right: the weights, softmax of these scores.

    Args:
        h: states, in brackets each
        w_q: W_q, a row in brackets for each output
        w_k: W_k, a row in brackets for each output
        w_v: W_v, a row in brackets for each output
        i: which state asks, from 1
    """
    states, queries, keys, values = _projected(h, w_q, w_k, w_v, i)
    scores = keys @ queries[i - 1]
    query, key, value = (x[None, None] for x in (queries[i - 1 : i], keys, values))
    weights = Softmax(scaled=False).weights(query, key).flatten()
    soft = Softmax(scaled=False)(query, key, value).flatten()
    hard = Argmax(scaled=False)(query, key, value).flatten()
    asking = _times(w_q, h[i - 1])
    expected = [sum(q * k for q, k in zip(asking, _times(w_k, x), strict=True)) for x in h]
    best = max(range(len(h)), key=expected.__getitem__)
    for j in range(len(h)):
        yield equal(f"score of state {j + 1}", scores[j], expected[j])
    for e, entry in enumerate(_times(w_v, h[best])):
        yield equal(f"output, entry {e + 1}, by argmax", hard[e], entry)
    yield at_least("largest weight by softmax", weights.max(), 1 - 1e-9)
    rows: list[tuple[Any, ...]] = []
    for j, (score, weight) in enumerate(zip(scores.tolist(), weights.tolist(), strict=True)):
        vectors = (vector_text(x[j]) for x in (states, queries, keys, values))
        rows.append((j + 1, *vectors, score, weight, vector_text(weight * values[j])))
    rows.append(("sum", *[""] * 5, float(weights.sum()), vector_text(soft)))
    columns = ["state", "h", "query", "key", "value", "score", "weight", "weight · value"]
    yield table(columns, rows)
    labels = [f"state {j}" for j in range(1, len(h) + 1)]
    yield figure(
        chart(bars(scores), names=labels, title="scores"),
        chart(bars(weights, color=1), names=labels, title="weights", y_limits=(0, 1.05)),
        shown=", ".join(f"{score:g}" for score in scores.tolist()),
    )
    names = [f"h{j}" for j in range(1, len(h) + 1)]
    heads = (x[None, None] for x in (queries, keys, values))
    title = "each state asks all others"
    yield look_inside(Softmax(scaled=False), *heads, queries=names, keys=names, title=title)


def _projected(h: Rows, w_q: Rows, w_k: Rows, w_v: Rows, i: int) -> tuple[Tensor, ...]:
    """States, queries, keys and values, a row each.

    Raises:
        UserError: the sizes don't fit.
    """
    if i > len(h):
        raise UserError(f"products: i = {i}, but there are {len(h)} states; name one of them")
    if len(w_q) != len(w_k):
        raise UserError(
            f"products: w_q gives {len(w_q)} entries, w_k {len(w_k)}; make them the same"
        )
    states = matrix("products: h", h)
    named, width = {"w_q": w_q, "w_k": w_k, "w_v": w_v}, states.shape[1]
    maps = (matrix(f"products: {name}", rows, width=width) for name, rows in named.items())
    return states, *(states @ each.T for each in maps)


def _times(matrix: Rows, vector: tuple[float, ...]) -> list[float]:
    """Matrix times vector, by hand: the oracle."""
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
