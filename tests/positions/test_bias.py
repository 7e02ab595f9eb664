"""Biases and vectors: every entry from its formula, and the same numbers for FlexAttention."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from largest import Largest
from refusals import refusal
from regard.attention import Softmax, TopK
from regard.attention.types import Bias, RelativeVectors
from regard.positions import Alibi, RelativeBias, ShawVectors, T5Bias
from regard.positions.bias import DistanceBias
from tiny_recurrent import normal

REACH = 12
few = settings(max_examples=30)
places = st.lists(st.integers(0, REACH), min_size=1, max_size=6)

LEARNED: dict[str, Callable[[], DistanceBias]] = {
    "length": lambda: RelativeBias(heads=3, length=REACH + 1),
    "clip": lambda: RelativeBias(heads=3, clip=4),
    "t5": lambda: T5Bias(heads=3, buckets=6, max_distance=9),
    "t5-bidirectional": lambda: T5Bias(heads=3, buckets=8, max_distance=9, bidirectional=True),
}
each_learned = pytest.mark.parametrize("make", LEARNED.values(), ids=LEARNED.keys())
each = pytest.mark.parametrize(
    "make", [*LEARNED.values(), lambda: Alibi(heads=3)], ids=[*LEARNED.keys(), "alibi"]
)


def numbered(bias: DistanceBias) -> DistanceBias:
    """Every entry of its parameters another whole number."""
    with torch.no_grad():
        for parameter in bias.parameters():
            parameter.copy_(torch.arange(1.0, parameter.numel() + 1).view_as(parameter))
    return bias


def learned(bias: DistanceBias) -> Tensor:
    (values,) = bias.parameters()
    return values.detach()


def entries(of: Callable[[int, int], float], heads: int, i: list[int], j: list[int]) -> Tensor:
    """The number of each head and distance j - i, one by one."""
    return torch.tensor([[[of(h, k - q) for k in j] for q in i] for h in range(heads)])


def published_slopes(heads: int) -> list[float]:
    """ALiBi's slopes, as its authors' code finds them."""
    power = 1
    while 2 * power <= heads:
        power *= 2
    if power == heads:
        ratio = 2 ** (-8 / heads)
        return [ratio * ratio**k for k in range(heads)]
    return published_slopes(power) + published_slopes(2 * power)[0::2][: heads - power]


def t5_bucket(distance: int, buckets: int, max_distance: int) -> int:
    """exact + ⌊far · log(n/exact) / log(max/exact)⌋ for exact + far buckets, in whole numbers."""
    exact = buckets // 2
    far = buckets - exact

    def reaches(step: int) -> bool:
        """far · log(n/exact) ≥ step · log(max/exact), freed of logarithms and fractions."""
        left: int = distance**far * exact**step
        right: int = max_distance**step * exact**far
        return left >= right

    return distance if distance < exact else exact + sum(map(reaches, range(1, far)))


@few
@given(i=places, j=places, heads=st.integers(1, 4), clip=st.none() | st.integers(0, REACH + 2))
def test_a_relative_bias_has_a_number_for_each_head_and_distance(
    i: list[int], j: list[int], heads: int, clip: int | None
) -> None:
    """Distances beyond the clip share its number."""
    length = REACH + 1 if clip is None else None
    bias = numbered(RelativeBias(heads=heads, length=length, clip=clip))
    values, most = learned(bias), REACH if clip is None else clip

    def number(head: int, distance: int) -> float:
        return float(values[head, max(-most, min(most, distance)) + most])

    dense = bias.dense(torch.tensor(i), torch.tensor(j))
    assert torch.equal(dense, entries(number, heads, i, j))


@few
@given(heads=st.integers(1, 16), n=st.integers(1, 64))
def test_parameters_are_counted_by_the_formula(heads: int, n: int) -> None:
    def count(bias: DistanceBias) -> int:
        return sum(parameter.numel() for parameter in bias.parameters())

    assert count(RelativeBias(heads=heads, length=n)) == (2 * (n - 1) + 1) * heads
    assert count(RelativeBias(heads=heads, clip=n)) == (2 * n + 1) * heads
    assert count(T5Bias(heads=heads)) == 32 * heads
    assert count(Alibi(heads=heads)) == 0


def test_a_distance_without_a_number_is_refused() -> None:
    bias = RelativeBias(heads=1, length=3)
    for i, j in ((3, 0), (0, 3)):
        with refusal(ValueError, f"length 3 has none for the distance {j - i}"):
            bias.dense(torch.tensor([i]), torch.tensor([j]))


def test_compiled_code_clips_it_instead() -> None:
    bias = numbered(RelativeBias(heads=1, length=3))
    compiled = torch.compile(bias.dense, backend="eager", fullgraph=True)
    assert compiled(torch.tensor([5]), torch.arange(11)).flatten().tolist() == (
        [1.0] * 4 + [2.0, 3.0, 4.0] + [5.0] * 4
    )


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(2, 5), (6, 9), (16, 64), (32, 128), (32, 256), (20, 1000)]
)
def test_t5_buckets_are_exact_then_logarithmic(buckets: int, max_distance: int) -> None:
    distances = list(range(-max_distance - 9, max_distance + 10))
    behind = [t5_bucket(max(0, -n), buckets, max_distance) for n in distances]
    ahead = [t5_bucket(max(0, n), buckets, max_distance) for n in distances]
    both = [buckets + a if a else b for a, b in zip(ahead, behind, strict=True)]

    one_way = T5Bias(heads=1, buckets=buckets, max_distance=max_distance)
    assert one_way.bucket(torch.tensor(distances)).tolist() == behind
    two_ways = T5Bias(heads=1, buckets=2 * buckets, max_distance=max_distance, bidirectional=True)
    assert two_ways.bucket(torch.tensor(distances)).tolist() == both


@few
@given(i=places, j=places, bidirectional=st.booleans())
def test_t5_has_a_number_for_each_head_and_bucket(
    i: list[int], j: list[int], bidirectional: bool
) -> None:
    bias = numbered(T5Bias(heads=3, buckets=8, max_distance=9, bidirectional=bidirectional))
    values = learned(bias)

    def number(head: int, distance: int) -> float:
        if bidirectional:
            bucket = t5_bucket(abs(distance), 4, 9) + 4 * (distance > 0)
        else:
            bucket = t5_bucket(max(0, -distance), 8, 9)
        return float(values[head, bucket])

    dense = bias.dense(torch.tensor(i), torch.tensor(j))
    assert torch.equal(dense, entries(number, 3, i, j))


@few
@given(i=places, j=places, heads=st.integers(1, 20))
def test_alibi_lowers_scores_by_slope_and_distance(i: list[int], j: list[int], heads: int) -> None:
    slopes = published_slopes(heads)
    dense = Alibi(heads=heads).dense(torch.tensor(i), torch.tensor(j))
    expected = entries(lambda h, distance: -slopes[h] * abs(distance), heads, i, j)
    # A slope and a product are rounded.
    assert torch.allclose(dense, expected, rtol=2 * torch.finfo(dense.dtype).eps, atol=0)


@each
@few
@given(data=st.data())
def test_rows_of_positions_are_biased_one_by_one(
    make: Callable[[], DistanceBias], data: st.DataObject
) -> None:
    bias = numbered(make())
    row = st.lists(st.integers(0, REACH), min_size=2, max_size=2)
    queries = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=3)))
    keys = torch.tensor(data.draw(places))
    expected = torch.stack([bias.dense(positions, keys) for positions in queries])
    assert torch.equal(bias.dense(queries, keys), expected)


@each_learned
def test_a_learned_bias_adds_nothing_at_first(make: Callable[[], DistanceBias]) -> None:
    assert not make().dense(torch.arange(5), torch.arange(5)).any()


@each
def test_it_compiles_in_one_graph(make: Callable[[], DistanceBias]) -> None:
    bias = numbered(make())
    positions = torch.arange(5), torch.arange(7)
    compiled = torch.compile(bias.dense, backend="eager", fullgraph=True)
    # Exact: the same operations on the same shapes.
    assert torch.equal(compiled(*positions), bias.dense(*positions))


@each
def test_it_keeps_the_protocol_and_saves_nothing_but_what_it_learns(
    make: Callable[[], DistanceBias],
) -> None:
    bias = make()
    assert isinstance(bias, Bias)
    assert list(bias.state_dict()) == [name for name, _ in bias.named_parameters()]


REFUSED: list[tuple[str, Callable[[], DistanceBias]]] = [
    ("a length or a clip", lambda: RelativeBias(heads=1)),
    ("a length or a clip", lambda: RelativeBias(heads=1, length=4, clip=2)),
    ("length must be positive, not 0", lambda: RelativeBias(heads=1, length=0)),
    ("clip can't be negative: -1", lambda: RelativeBias(heads=1, clip=-1)),
    ("needs a head, not 0", lambda: RelativeBias(heads=0, clip=1)),
    ("needs a head, not 0", lambda: Alibi(heads=0)),
    ("7 buckets can't be halved", lambda: T5Bias(heads=1, buckets=7, bidirectional=True)),
    ("two buckets or more, .* not 1 and 128", lambda: T5Bias(heads=1, buckets=1)),
    ("two buckets .* not 1 and 128", lambda: T5Bias(heads=1, buckets=2, bidirectional=True)),
    ("above half of them, not 32 and 16", lambda: T5Bias(heads=1, max_distance=16)),
]


def test_bad_arguments_are_refused() -> None:
    for message, make in REFUSED:
        with refusal(ValueError, message):
            make()


BATCH, HEADS, QUERIES, D, E = 2, 2, 3, 4, 5
seeds = st.integers(0, 2**32 - 1)
clips = st.integers(0, 4)
rows = st.lists(st.integers(0, 9), min_size=QUERIES, max_size=QUERIES)
batches = st.lists(rows, min_size=BATCH, max_size=BATCH)


def shaw(clip: int) -> ShawVectors:
    return ShawVectors(d=D, e=E, clip=clip).double()


def between(vectors: Tensor, i: list[list[int]], j: list[int]) -> Tensor:
    """w_{clip(j - i)} for each query and key, (batch, queries, keys, width)."""
    clip = len(vectors) // 2

    def vector(distance: int) -> Tensor:
        return vectors[max(-clip, min(clip, distance)) + clip]

    pairs = torch.stack([vector(key - query) for row in i for query in row for key in j])
    return pairs.view(len(i), len(i[0]), len(j), -1)


def close(out: Tensor, expected: Tensor) -> bool:
    """Sums of some dozen products of order one, in another order."""
    return torch.allclose(out, expected, rtol=1e-12, atol=1e-12)


@few
@given(seed=seeds, clip=clips, i=rows | batches, j=places)
def test_scores_and_outputs_are_products_with_the_vector_of_each_pair(
    seed: int, clip: int, i: Any, j: list[int]
) -> None:
    """For positions of each row of the batch, or of all."""
    vectors, positions = shaw(clip), (torch.tensor(i), torch.tensor(j))
    each = i if isinstance(i[0], list) else [i] * BATCH
    query = normal(BATCH, HEADS, QUERIES, D, seed=seed)
    expected = torch.einsum("bhqd,bqkd->bhqk", query, between(vectors.keys, each, j))
    assert close(vectors.scores(query, *positions), expected)
    weights = normal(BATCH, HEADS, QUERIES, len(j), seed=seed)
    expected = torch.einsum("bhqk,bqke->bhqe", weights, between(vectors.values, each, j))
    assert close(vectors.gather(weights, *positions), expected)


def test_a_dropped_weight_adds_no_vector_to_the_values() -> None:
    """Its term is A_ij (v_j + a^V_ij), so dropout of all weights leaves nothing."""
    query, key, value = (torch.ones(1, 2, 3, width) for width in (D, D, E))
    attend = Softmax(dropout=1.0)
    vectors = ShawVectors(d=D, e=E, clip=2)
    assert not attend.train()(query, key, value, bias=vectors).any()
    assert attend.eval()(query, key, value, bias=vectors).all()


def test_outputs_have_the_dtype_of_the_values_even_if_scores_are_wider() -> None:
    query, key, value = (torch.ones(1, 2, 3, width).bfloat16() for width in (D, D, E))
    vectors = ShawVectors(d=D, e=E, clip=2).bfloat16()
    assert TopK(k=2)(query, key, value, bias=vectors).dtype == torch.bfloat16


def test_no_tensor_is_larger_than_the_scores() -> None:
    n, d = 32, 16
    vectors, query, positions = ShawVectors(d=d, clip=4), torch.ones(2, 2, n, d), torch.arange(n)
    with Largest() as largest:
        scores = vectors.scores(query, positions, positions)
        gathered = vectors.gather(scores, positions, positions)
        torch.autograd.grad(gathered.sum(), (vectors.keys, vectors.values))
    assert largest.bytes == scores.nbytes


def test_the_query_sets_the_precision() -> None:
    vectors, positions = ShawVectors(d=D, clip=1), torch.arange(QUERIES)
    scores = vectors.scores(torch.ones(1, 1, QUERIES, D).bfloat16(), positions, positions)
    assert scores.dtype == torch.bfloat16
    assert vectors.gather(scores, positions, positions).dtype == torch.bfloat16


def test_vectors_compile_in_one_graph() -> None:
    vectors, query = shaw(2), normal(BATCH, HEADS, QUERIES, D)
    positions = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.arange(6)

    def call(query: Tensor) -> Tensor:
        return vectors.gather(vectors.scores(query, *positions), *positions)

    # Exact: the same operations on the same shapes.
    assert torch.equal(torch.compile(call, backend="eager", fullgraph=True)(query), call(query))


def test_the_vectors_are_small_at_first() -> None:
    vectors = ShawVectors(d=64, e=32, clip=16)
    assert vectors.keys.shape == (33, 64)
    assert vectors.values.shape == (33, 32)
    for parameter in vectors.parameters():
        # The deviation of n draws strays by σ/√(2n): five times that, for 1056 draws or more.
        assert abs(float(parameter.detach().std()) / 0.02 - 1) < 0.11
    assert ShawVectors(d=6, clip=1).values.shape == (3, 6)


def test_it_keeps_the_protocol_of_vectors_and_not_of_a_bias() -> None:
    assert isinstance(ShawVectors(d=4, clip=1), RelativeVectors)
    assert not isinstance(ShawVectors(d=4, clip=1), Bias)


def test_a_negative_clip_is_refused() -> None:
    with pytest.raises(ValueError, match="clip can't be negative: -1"):
        ShawVectors(d=4, clip=-1)
