"""Muon orthogonalizes in the precision that it is given, and otherwise is torch's."""

import pytest
import torch
from torch import nn

from products import seen_products
from regard.training.optimizers import COEFFICIENTS, ITERATIONS, Muon, orthogonalized

SHAPES = [(5, 5), (4, 6), (3, 8), (8, 3), (1, 4)]
"""Square, and wide or tall by less or more than a factor of two."""


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make(weights: nn.Parameter, dtype: torch.dtype) -> Muon:
    return Muon([weights], lr=0.1, momentum=0.9, weight_decay=0.2, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_muon_of_torch_in_bfloat16(shape: tuple[int, int]) -> None:
    ours, peers = (nn.Parameter(matrix(*shape)) for _ in range(2))
    peer = torch.optim.Muon([peers], lr=0.1, momentum=0.9, weight_decay=0.2)
    own = make(ours, torch.bfloat16)
    for step in range(3):
        ours.grad, peers.grad = (matrix(*shape, seed=step + 1) for _ in range(2))
        own.step()
        peer.step()
        # Exact: the same operations on the same shapes.
        assert torch.equal(ours, peers)


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_pass_through_the_polynomial(shape: tuple[int, int]) -> None:
    left, values, right = torch.linalg.svd(matrix(*shape).double(), full_matrices=False)
    expected, (a, b, c) = values / values.norm(), COEFFICIENTS
    for _ in range(ITERATIONS):
        expected = a * expected + b * expected**3 + c * expected**5
    exact = orthogonalized(matrix(*shape).double())
    torch.testing.assert_close(exact, left * expected @ right)
    # A rounding of G, whose eigenvalues near 0 are multiplied by a² from one iteration to the next.
    roundings = max(shape) * a ** (2 * ITERATIONS - 2) * torch.finfo(torch.float32).eps
    assert (orthogonalized(matrix(*shape)) - exact).abs().max() <= roundings


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_all_products_are_in_its_precision(dtype: torch.dtype) -> None:
    weights = nn.Parameter(matrix(4, 6))
    weights.grad = matrix(4, 6)
    optimizer = make(weights, dtype)
    with seen_products() as seen:
        optimizer.step()
    assert seen == {dtype}
    assert weights.dtype == torch.float32


def test_a_zero_gradient_only_decays() -> None:
    weights = nn.Parameter(torch.ones(2, 3))
    weights.grad = torch.zeros(2, 3)
    make(weights, torch.float32).step()
    torch.testing.assert_close(weights.detach(), torch.full((2, 3), 0.98))


def test_matrices_without_gradients_stay() -> None:
    weights = nn.Parameter(torch.ones(2, 3))
    make(weights, torch.float32).step()
    assert torch.equal(weights, torch.ones(2, 3))
