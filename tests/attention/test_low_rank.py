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
@given(
    rank=st.integers(1, 4),
    rows=st.integers(4, 8),
    columns=st.integers(4, 8),
    generator=generators(),
)
def test_a_matrix_of_a_rank_is_its_own_truncation_to_it(
    rank: int, rows: int, columns: int, generator: torch.Generator
) -> None:
    left = torch.randn(2, rows, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(2, rank, columns, generator=generator, dtype=torch.float64)
    low = truncate(left @ right, rank)
    assert furthest(low.matrix, left @ right) <= 100 * EPS64 * float((left @ right).abs().max())
    assert furthest(low.energy, torch.ones(2)) <= 10 * EPS64


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


def test_energies_of_known_singular_values() -> None:
    matrix = torch.diag(torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64))
    shares = [float(truncate(matrix, rank).energy) for rank in (1, 2, 3)]
    assert shares == pytest.approx([9 / 14, 13 / 14, 1.0], rel=1e-14)
    kept = torch.diag(torch.tensor([0.0, 3.0, 2.0], dtype=torch.float64))
    assert furthest(truncate(matrix, 2).matrix, kept) <= 10 * EPS64


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


@pytest.mark.parametrize(("n", "h", "k"), [(12, 4, 4), (12, 4, 2), (5, 8, 5), (20, 8, 1)])
def test_projections_from_singular_vectors_lose_nothing_without_softmax(
    n: int, h: int, k: int
) -> None:
    """P = QKᵀ/√h = UΣWᵀ of rank k: with C = Wᵀ/√h and D = Wᵀ, PV = Q(CK)ᵀ·DV."""
    query, key = normal(n, k, seed=1) @ normal(k, h, seed=2), normal(n, h, seed=3)
    value = normal(n, 3, seed=4)
    P = query @ key.T / h**0.5
    D = truncate(P, k).right
    C = D / h**0.5
    assert C.shape == D.shape == (k, n)
    bound = 20 * n * EPS64 * float(P.norm() * value.norm())
    assert furthest(query @ (C @ key).T @ (D @ value), P @ value) <= bound
    # Nor does Q(KᵀV)/√h, which needs no singular vector.
    assert furthest(query @ (key.T @ value) / h**0.5, P @ value) <= bound
    if k > 1:
        fewer = truncate(P, k - 1).right
        off = query @ (fewer @ key).T @ (fewer @ value) / h**0.5
        assert furthest(off, P @ value) > 0.1
