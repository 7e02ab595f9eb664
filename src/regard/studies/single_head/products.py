"""Queries, keys and values of one head, computed step by step."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta
from torch import Tensor

from regard.attention import Argmax, Softmax
from regard.errors import UserError
from regard.studies.figure import bars, chart, figure
from regard.studies.finding import at_least, equal, look_inside, table
from regard.studies.study import EvidenceParts, study
from regard.studies.tensors import Rows, matrix, vector_text

Matrix: TypeAlias = Annotated[Rows, Meta(min_length=1)]


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

    Scores and output are compared with products computed without tensors.

    Figure. Left: the scores {shown}. Right: the weights, softmax of these scores.

    Args:
        h: states, each in brackets
        w_q: W_q, each row in brackets
        w_k: W_k, each row in brackets
        w_v: W_v, each row in brackets
        i: state of the query, from 1
    """
    states, queries, keys, values = _projected(h, w_q, w_k, w_v, i)
    heads, attend = [x[None, None] for x in (queries, keys, values)], Softmax(scaled=False)
    scores, weights = keys @ queries[i - 1], attend.weights(*heads[:2])[0, 0, i - 1]
    hard = Argmax(scaled=False)(*heads)[0, 0, i - 1]
    expected = _times(tuple(_times(w_k, x) for x in h), _times(w_q, h[i - 1]))
    best = max(range(len(h)), key=expected.__getitem__)
    for j in range(len(h)):
        yield equal(f"score of state {j + 1}", scores[j], expected[j])
    for e, entry in enumerate(_times(w_v, h[best])):
        yield equal(f"output, entry {e + 1}, by argmax", hard[e], entry)
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
    yield look_inside(attend, *heads, queries=names, keys=names, title=title)


def _projected(h: Rows, w_q: Rows, w_k: Rows, w_v: Rows, i: int) -> tuple[Tensor, ...]:
    """Return states, queries, keys and values as rows.

    Raises:
        UserError: the sizes don't fit.
    """
    if i > len(h):
        raise UserError(f"products: i = {i}, but there are {len(h)} states; use at most {len(h)}")
    if len(w_q) != len(w_k):
        raise UserError(
            f"products: w_q has {len(w_q)} rows and w_k {len(w_k)}; give both the same number"
        )
    states = matrix("products: h", h)
    named, width = {"w_q": w_q, "w_k": w_k, "w_v": w_v}, states.shape[1]
    maps = (matrix(f"products: {name}", rows, width=width) for name, rows in named.items())
    return states, *(states @ each.T for each in maps)


def _times(matrix: Rows, vector: tuple[float, ...]) -> tuple[float, ...]:
    """Return matrix times vector, computed without tensors."""
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
