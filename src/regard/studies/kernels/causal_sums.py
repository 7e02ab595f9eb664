"""Causal kernel attention by running sums."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Literal, NamedTuple, TypeAlias

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
    double. A chunk as long as the row is the full matrix, with quadratic cost.

    Figure. Left: measured time of a row, in chunks and by the matrix. The number of operations
    grows linearly and quadratically; the time depends on memory, too. Right: S and Z have constant
    size; a cache of keys and values grows with the length.

    Args:
        features: the feature map φ
        d: width of queries, keys and values
        n: number of tokens in the compared row
        chunk: number of tokens per chunk
    """
    attend = KernelAttention(MAPS[features](d), chunk=chunk)
    row = draw_row(n, d, seed)
    exact, within = by_matrix(attend, row), rounding(attend, row)
    lengths = [SHORTEST * 2**i for i in range(doublings + 1)]
    rows = [draw_row(length, d, seed) for length in lengths]
    step, cache = ([after(one, x) for x in rows] for one in (attend, Softmax()))
    for name, way in {"token by token": token_by_token, "in chunks": in_chunks}.items():
        error = largest(way(attend, row) - exact)
        yield equal(f"largest difference of outputs, {name} and by the matrix", error, 0, within)
    times = {}
    for name, way, power in (("in chunks", in_chunks, 1), ("by the matrix", by_matrix, 2)):
        calls = [partial(way, attend, x) for x in rows]
        counts = [multiplications(call) for call in calls]
        yield equal(f"exponent of N, operations {name}", exponent(lengths, counts), power, 0.05)
        times[name] = [1e3 * seconds(call) for call in calls]
    when = f"after {lengths[-1]} tokens"
    yield equal(f"operations of a step {when}", step[-1].operations, step[0].operations)
    yield equal(f"bytes of S and Z {when}", step[-1].bytes, step[0].bytes)
    yield informational(f"bytes of keys and values {when}", cache[-1].bytes)
    states = {"$S$ and $Z$": step, "keys and values": cache}
    kilobytes = {name: [one.bytes / 1024 for one in each] for name, each in states.items()}
    yield figure(
        log_chart(lengths, times, title="time of a row, ms", x="tokens $N$"),
        log_chart(lengths, kilobytes, title="state, KiB", x="tokens $N$"),
    )


class Row(NamedTuple):
    """Queries, keys and values of one head."""

    query: Float[Tensor, "1 1 n d"]
    key: Float[Tensor, "1 1 n d"]
    value: Float[Tensor, "1 1 n d"]

    def part(self, start: int, stop: int) -> "Row":
        """Return some of the tokens."""
        return Row(*(x[:, :, start:stop] for x in self))


class Step(NamedTuple):
    """Cost of one token."""

    operations: int
    bytes: int
    """Size of the state after it."""


def draw_row(n: int, d: int, seed: int) -> Row:
    """Draw normal vectors."""
    return Row(*normal(seed, 3, 1, 1, n, d))


def by_matrix(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the matrix of masked weights times the values."""
    out: Tensor = attend.weights(row.query, row.key, mask=Mask.causal()) @ row.value
    return out


def in_chunks(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the outputs of all tokens, computed in chunks."""
    return attend(*row, mask=Mask.causal())  # type: ignore[no-any-return]


def token_by_token(attend: KernelAttention, row: Row) -> Float[Tensor, "1 1 n d"]:
    """Return the outputs of the recurrence."""
    state, outputs = start(attend, row), []
    for i in range(row.query.shape[2]):
        output, state = attend.extend(*row.part(i, i + 1), state)
        outputs.append(output)
    return torch.cat(outputs, 2)


def after(attend: Attention, row: Row) -> Step:
    """Return the cost of the last token of a row."""
    n = row.query.shape[2]
    _, before = attend.extend(*row.part(0, n - 1), start(attend, row))
    step = partial(attend.extend, *row.part(n - 1, n))
    operations = 2 * multiplications(lambda: step(before))
    return Step(operations, step(before)[1].bytes)


def start(attend: Attention, row: Row) -> State:
    """Return the state before the first token."""
    query = row.query
    n, d = query.shape[2:]
    return attend.init_state(1, 1, d, d, capacity=n, device=query.device, dtype=query.dtype)


def rounding(attend: KernelAttention, row: Row) -> float:
    """Return a bound for rounding, which comes from sums of one sign over features and tokens."""
    n, d = row.query.shape[2:]
    terms = n + attend.features.size(d) + d
    return float(8 * terms * torch.finfo(row.value.dtype).eps * row.value.abs().max())
