"""Random tensors, and the size of differences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.tensors import largest, map_distance, normal, relative_error


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
