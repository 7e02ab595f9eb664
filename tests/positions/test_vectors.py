"""Shaw's vectors against the tensor of queries × keys × d that they avoid."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from largest import Largest
from regard.attention.types import Bias, RelativeVectors
from regard.positions import ShawVectors
from tiny_recurrent import normal

BATCH, HEADS, QUERIES, D, E = 2, 2, 3, 4, 5
few = settings(max_examples=30)

seeds = st.integers(0, 2**32 - 1)
clips = st.integers(0, 4)
rows = st.lists(st.integers(0, 9), min_size=QUERIES, max_size=QUERIES)
batches = st.lists(rows, min_size=BATCH, max_size=BATCH)
places = st.lists(st.integers(0, 9), min_size=1, max_size=6)


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


def test_it_compiles_in_one_graph() -> None:
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
