"""Noisy keys, with one head and with two."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.single_head.noisy_keys import (
    A,
    B,
    chosen_share,
    distances,
    found_share,
    gamma_quantiles,
    noisy_keys,
    noisy_keys_two_heads,
    outputs,
    query_along,
    share,
    weight_outside,
    without_noise,
)

LENGTHS = st.floats(0.1, 20)


@settings(max_examples=20)
@given(st.integers(3, 12), LENGTHS, st.sampled_from([(A,), (B,), (A, B)]), st.integers(0, 99))
def test_without_noise_the_formula_is_what_attention_does(
    n: int, t: float, means: tuple[int, ...], seed: int
) -> None:
    keys, query = noisy_keys(100, n, 1e-30, 0.5, seed), query_along(n, t, *means)
    expected = without_noise(keys[:, A, A], query)
    torch.testing.assert_close(outputs(keys, query), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("alpha", "stretch"), [(0.01, 0.5), (1.0, 0.0)])
def test_keys_have_the_covariances_asked_for(alpha: float, stretch: float) -> None:
    draws, n = 8000, 4
    keys = noisy_keys(draws, n, alpha, stretch, seed=1)
    wanted = torch.full((n, n), alpha, dtype=torch.float64)
    wanted[A, A] += stretch
    mean_error = (wanted / draws).sqrt()
    assert ((keys.mean(0) - torch.eye(n)).abs() <= 4 * mean_error).all()
    variance_error = wanted * (2 / draws) ** 0.5
    assert ((keys.var(0) - wanted).abs() <= 4 * variance_error).all()
    across = torch.corrcoef(keys.flatten(1).T) - torch.eye(n * n)
    assert across.abs().max() <= 4.5 / draws**0.5


def test_the_same_seed_gives_the_same_noise_in_another_size() -> None:
    mean = torch.eye(5, dtype=torch.float64)
    small, large = (noisy_keys(100, 5, alpha, 0.0, seed=2) - mean for alpha in (0.01, 0.04))
    torch.testing.assert_close(large, 2 * small)


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=9))
def test_the_weight_outside_is_a_share(scores: list[float]) -> None:
    weights = torch.tensor([scores], dtype=torch.float64).softmax(-1)
    found = float(weight_outside(weights))
    kept = weights[0, [A, B]].clamp(max=0.5).sum()
    assert 0 <= found <= 1
    assert found == pytest.approx(1 - float(kept), abs=1e-12)


def test_gamma_without_chance_has_the_moments_asked_for() -> None:
    gamma = gamma_quantiles(0.5)
    assert gamma.mean() == pytest.approx(1)
    assert gamma.var() == pytest.approx(0.5, rel=1e-3)


def test_a_share_may_differ_by_four_standard_errors() -> None:
    happened = torch.arange(400) < 200
    assert share("x", happened, 0.5).holds
    assert share("x", happened, 0.4).high == pytest.approx(0.4 + 4 * 0.02449 + 0.0025, abs=1e-4)
    assert not share("x", happened, 0.35).holds


@settings(max_examples=30)
@given(st.floats(0.5, 100), st.floats(0.01, 4))
def test_how_often_one_is_chosen_follows_from_the_sigmoid(t: float, stretch: float) -> None:
    gamma = gamma_quantiles(stretch, 2001)
    s = torch.sigmoid(t * (gamma - 1))
    measured = ((s < 0.1) | (s > 0.9)).double().mean()
    assert chosen_share(t, 0, stretch) == pytest.approx(float(measured), abs=2 / len(gamma))


@settings(max_examples=30)
@given(st.integers(3, 40), st.floats(0.5, 100), st.floats(0.01, 4))
def test_how_often_v_a_is_found_follows_from_the_weights(n: int, t: float, stretch: float) -> None:
    gamma = gamma_quantiles(stretch, 2001)
    found = (without_noise(gamma, query_along(n, t, A))[:, A] > 0.5).double().mean()
    assert found_share(n, t, stretch) == pytest.approx(float(found), abs=2 / len(gamma))


def test_the_numbers_of_the_specification() -> None:
    assert found_share(10, 8, 0.5) == pytest.approx(0.848, abs=1e-3)
    assert found_share(10, math.inf, 0.5) == pytest.approx(0.921, abs=5e-4)
    assert chosen_share(8, 1e-6, 0.5) == pytest.approx(0.698, abs=1e-3)
    measured = {number.name: number.measured for number in noisy_keys_two_heads().numbers}
    assert measured["share of draws with α_a > ½"] == pytest.approx(0.848, abs=0.025)
    assert measured["variance of c, two heads"] < measured["variance of c, one head"] / 10


def test_the_mean_squared_distance_is_the_variance() -> None:
    c = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert distances(c).mean() == pytest.approx(float(c.var(0, correction=0).sum()), rel=1e-5)
