"""Sequences that change slowly."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.tensors import slow_walks


@settings(max_examples=10)
@given(st.floats(0, 50), st.integers(0, 1000))
def test_variance_and_correlation(reach: float, seed: int) -> None:
    walks = slow_walks(4000, 12, 1, reach=reach, seed=seed)[:, 0, :, 0]
    # Five standard errors of 4000 independent walks.
    assert float(walks.var(0).max()) == pytest.approx(1, abs=5 * math.sqrt(2 / 4000) * 1.2)
    lag = 10
    correlation = float((walks[:, 0] * walks[:, lag]).mean())
    expected = math.exp(-lag / reach) if reach else 0.0
    assert correlation == pytest.approx(expected, abs=5 * math.sqrt(2 / 4000))


def test_the_same_seed_draws_the_same() -> None:
    first, second = (slow_walks(2, 5, 3, reach=4, seed=(1, 2)) for _ in range(2))
    assert first.equal(second)
    assert first.shape == (2, 1, 5, 3)
