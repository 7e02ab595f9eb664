"""Truncation to low rank: the nearest matrix, and what it loses."""

import numpy as np
import pytest
import torch
from attention_cases import brief, furthest, generators, normal, thorough
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.low_rank import truncate

EPS64 = torch.finfo(torch.float64).eps


# Truncation


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Matrices of any shape, of full rank, and a rank of theirs."""
    batch = draw(st.lists(st.integers(1, 2), max_size=2))
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    generator = draw(generators())
    matrix = torch.randn(*batch, rows, columns, generator=generator, dtype=torch.float64)
    return matrix, draw(st.integers(1, min(rows, columns)))


@thorough
@given(matrix_and_rank=matrices())
def test_no_matrix_of_that_rank_is_nearer(matrix_and_rank: tuple[Tensor, int]) -> None:
    """The distance is the root of the squares of the singular values left out."""
    matrix, rank = matrix_and_rank
    low = truncate(matrix, rank)
    assert low.left.shape == (*matrix.shape[:-1], rank)
    assert low.right.shape == (*matrix.shape[:-2], rank, matrix.shape[-1])
    values = torch.from_numpy(np.linalg.svd(matrix.numpy(), compute_uv=False))
    squares = values.square()
    bound = 100 * EPS64 * float(values.max())
    distance = torch.linalg.matrix_norm(matrix - low.matrix)
    assert furthest(distance, squares[..., rank:].sum(-1).sqrt()) <= bound
    assert furthest(low.energy, squares[..., :rank].sum(-1) / squares.sum(-1)) <= 100 * EPS64


@brief
@given(matrix_and_rank=matrices(), e=st.integers(1, 3))
def test_its_product_with_values_is_the_matrix_s(
    matrix_and_rank: tuple[Tensor, int], e: int
) -> None:
    matrix, rank = matrix_and_rank
    low, value = truncate(matrix, rank), normal(*matrix.shape[:-2], matrix.shape[-1], e)
    assert (low @ value).shape == (*matrix.shape[:-1], e)
    bound = 100 * EPS64 * float(matrix.norm() * value.norm())
    assert furthest(low @ value, low.matrix @ value) <= bound


def test_nothing_is_lost_of_a_matrix_of_zeros() -> None:
    mixed = torch.stack([torch.zeros(3, 4), torch.ones(3, 4)])
    low = truncate(mixed, 1)
    assert low.energy.tolist() == pytest.approx([1.0, 1.0])
    assert torch.equal(low.matrix[0], torch.zeros(3, 4))


@pytest.mark.parametrize("rank", [-1, 0, 4])
def test_a_rank_that_the_matrix_cannot_have_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank}"):
        truncate(normal(2, 3, 5), rank)


# Projection of keys and values
