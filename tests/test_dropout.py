"""Dropout by row: the right share, independent of what is around a row, and reproducible."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import dropout
from regard.dropout import (
    Dropout,
    dropout_mask,
    dropouts,
    make_row_keys,
    release_rows,
    set_row_keys,
)

SEEDS = st.integers(0, 2**32 - 1)


def kept(keys: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """1 where a place is kept, and 0 where it is dropped."""
    return dropout_mask(keys, shape, p, torch.float64).sign()


def keys(rows: Tensor, *, seed: int = 0, step: int = 0, site: int = 0) -> Tensor:
    return make_row_keys(site + 1, seed, step, rows)[site]


@settings(deadline=None, derandomize=True, max_examples=30)
@given(SEEDS, st.integers(0, 1000), st.permutations(range(5)), st.integers(1, 6), st.integers(1, 5))
def test_a_row_drops_the_same_in_any_batch_and_padding(
    seed: int, step: int, order: list[int], n: int, heads: int
) -> None:
    rows = torch.tensor(order[:3])
    wide = kept(keys(torch.arange(5), seed=seed, step=step), (heads, 7, 9), 0.5)
    narrow = kept(keys(rows, seed=seed, step=step), (heads, n, n), 0.5)
    assert torch.equal(narrow, wide[rows, :, :n, :n])


def test_rows_may_be_hashed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    together = kept(keys(torch.arange(5)), (3, 7, 9), 0.5)
    monkeypatch.setattr(dropout, "CACHED", 1)
    assert torch.equal(kept(keys(torch.arange(5)), (3, 7, 9), 0.5), together)


@settings(deadline=None, derandomize=True, max_examples=10)
@given(SEEDS, st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_as_many_are_dropped_as_asked(seed: int, p: float) -> None:
    """Within five standard deviations of a binomial share, in total and in each row and column."""
    mask = kept(keys(torch.arange(16), seed=seed), (64, 96), p)
    for dimensions in ((0, 1, 2), (1, 2), (0, 1), (0, 2)):
        share = mask.mean(dimensions)
        draws = mask.numel() / share.numel()
        assert (share - (1 - p)).abs().max() < 5 * sqrt(p * (1 - p) / draws)


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"step": 1}, {"site": 1}, {"seed": 2**32 - 1, "step": 77}]
)
def test_masks_of_other_seeds_steps_and_places_are_independent(other: dict[str, int]) -> None:
    rows = torch.arange(16)
    one, two = (kept(keys(rows, **given), (64, 96), 0.5) - 0.5 for given in ({}, other))
    # Products of ±1/2 have the mean 0 and the standard deviation 1/4.
    assert (one * two).mean().abs() < 5 / 4 / sqrt(one.numel())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("distance", [1, 2, 3, 8])
def test_neighbors_are_independent(axis: int, distance: int) -> None:
    mask = kept(keys(torch.arange(16)), (64, 96), 0.5) - 0.5
    product = mask * mask.roll(distance, axis)
    assert product.mean().abs() < 5 / 4 / sqrt(mask.numel())


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_places_that_share_a_hash_are_independent(p: float) -> None:
    mask = kept(keys(torch.arange(16)), (64, 96), p) - (1 - p)
    product = mask[..., ::2] * mask[..., 1::2]
    assert product.mean().abs() < 5 * p * (1 - p) / sqrt(product.numel())


@pytest.mark.parametrize("p", [1e-7, 1e-5, 0.1, 0.9, 0.9999, 1 - 1e-7])
def test_the_mean_of_a_mask_is_one(p: float) -> None:
    """Also where p is rounded to a multiple of 2⁻¹⁶; at most all hashes but one drop."""
    mask = dropout_mask(keys(torch.arange(64)), (256, 256), p, torch.float64)
    share = min(round(p * 2**16), 2**16 - 1) / 2**16
    assert abs(mask.mean() - 1) <= 5 * sqrt(share / (1 - share) / mask.numel())


def test_what_is_kept_is_scaled() -> None:
    module = Dropout(0.25)
    set_row_keys([module], make_row_keys(1, 0, 0, torch.arange(3)))
    out = module(torch.full((3, 40, 8), 3.0, requires_grad=True))
    assert set(out.detach().flatten().tolist()) == {0.0, 4.0}
    module.eval()
    x = torch.ones(3, 2)
    assert module(x) is x


def test_everything_may_be_dropped() -> None:
    module = Dropout(1.0)
    set_row_keys([module], make_row_keys(1, 0, 0, torch.arange(2)))
    assert not module(torch.ones(2, 5)).any()


def test_without_keys_it_is_torch_s() -> None:
    x = torch.ones(4, 8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = nn.Dropout(0.3)(x)
        torch.manual_seed(0)
        released = Dropout(0.3)
        set_row_keys([released], make_row_keys(1, 0, 0, torch.arange(4)))
        release_rows([released])
        assert torch.equal(released(x), expected)


def test_only_places_that_drop_are_numbered() -> None:
    model = nn.Sequential(Dropout(0.0), nn.Linear(2, 2), Dropout(0.5))
    assert dropouts(model) == [model[2]]
