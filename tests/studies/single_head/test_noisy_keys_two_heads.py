"""The study `noisy-keys-two-heads`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.single_head.noisy_keys import (
    A,
    distances,
    found_share,
    gamma_quantiles,
    noisy_keys_two_heads,
    query_along,
    without_noise,
)
from tiny_studies import verdict


@settings(max_examples=30)
@given(st.integers(3, 40), st.floats(0.5, 100), st.floats(0.01, 4))
def test_how_often_v_a_is_found_follows_from_the_weights(n: int, t: float, stretch: float) -> None:
    gamma = gamma_quantiles(stretch, 2001)
    found = (without_noise(gamma, query_along(n, t, A))[:, A] > 0.5).double().mean()
    assert found_share(n, t, stretch) == pytest.approx(float(found), abs=2 / len(gamma))


def test_the_numbers_of_the_specification() -> None:
    assert found_share(10, 8, 0.5) == pytest.approx(0.848, abs=1e-3)
    assert found_share(10, math.inf, 0.5) == pytest.approx(0.921, abs=5e-4)
    measured = {number.name: number.measured for number in noisy_keys_two_heads().numbers}
    assert measured["share of draws with α_a > ½"] == pytest.approx(0.848, abs=0.025)
    assert measured["variance of c, two heads"] < measured["variance of c, one head"] / 10


def test_the_mean_squared_distance_is_the_variance() -> None:
    c = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert distances(c).mean() == pytest.approx(float(c.var(0, correction=0).sum()), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_verdict(seed: int) -> None:
    assert verdict(noisy_keys_two_heads, f"seed={seed}") is Verdict.HOLDS


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("t=2.5", "the queries are too short"),
        ("n=48 draws=1000", "there are too many keys for them"),
        ("alpha=0.1", "all keys are noisy"),
        ("stretch=4.0", "k_a often points the wrong way"),
    ],
)
def test_the_claim_needs_its_premises(wrong: str, why: str) -> None:
    assert verdict(noisy_keys_two_heads, *wrong.split()) is Verdict.FAILS, why
