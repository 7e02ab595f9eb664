"""Causal kernel attention by running sums."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Attention, KernelAttention, Mask, Softmax
from regard.attention.feature_maps import Elu, FavorPositive, FeatureMap, Polynomial
from regard.attention.state import State
from regard.studies.costs import exponent, multiplications, seconds
from regard.studies.figure import figure, log_chart
from regard.studies.finding import equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, normal

SHORTEST = 512
"""Length of the shortest row with counted operations and measured time."""
Row: TypeAlias = Float[Tensor, "3 1 1 n d"]
"""Queries, keys and values of one head."""
Map: TypeAlias = Literal["elu", "polynomial", "favor-positive"]
MAPS: Mapping[Map, Callable[[int], FeatureMap]] = {
    "elu": lambda d: Elu(),
    "polynomial": lambda d: Polynomial(d=d, degree=2),
    "favor-positive": lambda d: FavorPositive(d=d, features=4 * d),
}


@study()
def causal_sums(
    features: Map = "elu",
    d: Annotated[int, Meta(ge=2, le=32)] = 16,
    n: Annotated[int, Meta(ge=2, le=400)] = 200,
    chunk: Literal[1, 16, 64, 256, 4096] = 64,
    doublings: Annotated[
        int, Meta(ge=1, le=3, description=f"number of longer rows, each double, from {SHORTEST}")
    ] = 2,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What is the cost of causal masking in kernel attention?

    Only a running sum: S_i and Z_i, token by token or in chunks, give the output of the masked
    matrix, with operations linear in the length and a state of constant size.

    $$ c_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top Z_i}, \quad S_i = S_{i-1} + \phi(k_i)
    v_i^\top, \quad Z_i = Z_{i-1} + \phi(k_i) $$

    Outputs of one row are compared; operations are counted, and times measured, at lengths that
    double.

    Figure. Left: measured time of a row, in chunks and by the matrix. The number of operations
    grows linearly and quadratically; the time depends on memory, too. Right: S and Z have constant
    size; a cache of keys and values grows with the length.

    Args:
        features: the feature map φ
        d: width of queries, keys and values
        n: number of tokens in the compared row
        chunk: number of tokens per chunk
    """
    attend, row = KernelAttention(MAPS[features](d), chunk=chunk), normal(seed, 3, 1, 1, n, d)
    exact, within = by_matrix(attend, row), rounding(attend, row)
    for name, way in {"token by token": token_by_token, "in chunks": in_chunks}.items():
        error = largest(way(attend, row) - exact)
        yield equal(f"largest difference of outputs, {name} and by the matrix", error, 0, within)
    lengths, times = [SHORTEST * 2**i for i in range(doublings + 1)], {}
    rows = [normal(seed, 3, 1, 1, length, d) for length in lengths]
    linear = 2 * multiplications(lambda: attend.features(rows[0][0]))  # of queries and keys
    for name, way, power in (("in chunks", in_chunks, 1), ("by the matrix", by_matrix, 2)):
        calls = [partial(way, attend, x) for x in rows]
        counts = [multiplications(call) for call in calls]
        # Features of single tokens add a linear term: it lowers the exponent by at most its share.
        within = max(0.05, linear / counts[0] if power == 2 else 0.0)
        yield equal(f"exponent of N, operations {name}", exponent(lengths, counts), power, within)
        times[name] = [1e3 * seconds(call) for call in calls]
    when = f"after {lengths[-1]} tokens"
    operations, sums = zip(*(after(attend, x) for x in rows), strict=True)
    cache = [after(Softmax(), x)[1] for x in rows]
    yield equal(f"operations of a step {when}", operations[-1], operations[0])
    yield equal(f"bytes of S and Z {when}", sums[-1], sums[0])
    yield informational(f"bytes of keys and values {when}", cache[-1])
    states = {"$S$ and $Z$": np.divide(sums, 1024), "keys and values": np.divide(cache, 1024)}
    yield figure(
        log_chart(lengths, times, title="time of a row, ms", x="tokens $N$"),
        log_chart(lengths, states, title="state, KiB", x="tokens $N$"),
    )


def by_matrix(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the matrix of masked weights times the values."""
    out: Tensor = attend.weights(*row[:2], mask=Mask.causal()) @ row[2]
    return out


def in_chunks(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the outputs of all tokens, computed in chunks."""
    return attend(*row, mask=Mask.causal())  # type: ignore[no-any-return]


def token_by_token(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the outputs of the recurrence."""
    state, outputs = start(attend, row), []
    for query, key, value in row.split(1, dim=-2):
        output, state = attend.extend(query, key, value, state)
        outputs.append(output)
    return torch.cat(outputs, 2)


def after(attend: Attention, row: Row) -> tuple[int, int]:
    """Return the operations of the last token of a row, and the bytes of the state after it."""
    query, key, value = row[..., :-1, :]
    _, before = attend.extend(query, key, value, start(attend, row))
    query, key, value = row[..., -1:, :]
    step = partial(attend.extend, query, key, value, before)
    return 2 * multiplications(step), step()[1].bytes


def start(attend: Attention, row: Row) -> State:
    """Return the state before the first token."""
    n, d = row.shape[-2:]
    return attend.init_state(1, 1, d, d, capacity=n, device=row.device, dtype=row.dtype)


def rounding(attend: KernelAttention, row: Row) -> float:
    """Return a bound for rounding, which comes from sums over features and tokens."""
    n, d = row.shape[-2:]
    terms = n + attend.features.size(d) + d
    return 8 * terms * torch.finfo(row.dtype).eps * cancellation(attend, row) * largest(row[2])


def cancellation(attend: KernelAttention, row: Row) -> float:
    """Return the largest ratio of a sum of weights' absolute terms to the sum; 1 without signs."""
    if attend.features.positive:
        return 1.0
    query, key = (attend.features(x)[0] for x in row[:2])
    absolute = (query.abs() * key.abs().cumsum(-2)).sum(-1)
    return float((absolute / (query * key.cumsum(-2)).sum(-1)).max())
