"""Random tensors and walks, and the size of differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.studies.tensors import (
    largest,
    map_distance,
    normal,
    relative_error,
    slow_walks,
    untrained,
)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_a_seed_draws_one_tensor(seed: int, shape: list[int]) -> None:
    state = torch.random.get_rng_state()
    first, second = (normal(seed, *shape) for _ in range(2))
    assert first.equal(second)
    assert (list(first.shape), first.dtype) == (shape, torch.float64)
    assert torch.random.get_rng_state().equal(state), "the global generator is left as it was"


def test_entries_have_the_moments_of_a_normal_distribution() -> None:
    drawn = normal(0, 40_000)
    assert float(drawn.mean()) == pytest.approx(0, abs=5 / 200)
    assert float(drawn.var()) == pytest.approx(1, abs=5 * (2 / 40_000) ** 0.5)


def test_sizes_by_hand() -> None:
    assert largest(torch.tensor([[1.0, -3.0], [2.0, 0.0]])) == 3
    found, exact = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 4.0])
    assert relative_error(found, exact) == 0.75


def test_maps_that_share_no_key_have_the_distance_one() -> None:
    first, second = torch.eye(3), torch.eye(3).roll(1, 0)
    half = (first + second) / 2
    found = map_distance(torch.stack([first, first, first]), torch.stack([first, half, second]))
    assert found.tolist() == pytest.approx([0, 0.5, 1])


@settings(max_examples=10)
@given(st.floats(0, 50), st.integers(0, 1000))
def test_slow_walks_have_their_variance_and_correlation(reach: float, seed: int) -> None:
    walks = slow_walks(4000, 12, 1, reach=reach, seed=seed)[:, 0, :, 0]
    # Five standard errors of 4000 independent walks.
    assert float(walks.var(0).max()) == pytest.approx(1, abs=5 * math.sqrt(2 / 4000) * 1.2)
    lag = 10
    correlation = float((walks[:, 0] * walks[:, lag]).mean())
    expected = math.exp(-lag / reach) if reach else 0.0
    assert correlation == pytest.approx(expected, abs=5 * math.sqrt(2 / 4000))


def test_the_same_seed_walks_the_same() -> None:
    first, second = (slow_walks(2, 5, 3, reach=4, seed=(1, 2)) for _ in range(2))
    assert first.equal(second)
    assert first.shape == (2, 1, 5, 3)


def test_untrained_layers_are_drawn_by_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (untrained(lambda: nn.Linear(50, 40), seed).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_untrained_layer_keeps_the_size_of_its_input() -> None:
    layer = untrained(lambda: nn.Linear(200, 200), 0)
    x = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # Squares of N(0, 1) have variance 2; over 200 of them, twice.
    assert layer(x).square().mean() == pytest.approx(1, abs=4 * 0.2)
    assert not layer.weight.requires_grad
