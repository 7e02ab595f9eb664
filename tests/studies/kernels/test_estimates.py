"""What features estimate, and what theory says of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.feature_maps import draw_directions
from regard.studies.kernels.favor import (
    KINDS,
    Pair,
    by_direction,
    errors_of,
    measure,
    orthogonal_bound,
    predicted,
)

LENGTHS, COSINES = st.floats(0.05, 1.5), st.floats(-1, 1)


@settings(max_examples=50)
@given(LENGTHS, COSINES, st.integers(2, 16))
def test_a_pair_has_its_lengths_and_its_kernel(length: float, cosine: float, d: int) -> None:
    pair = Pair.of(length, cosine)
    x, y = (z[0] / d**0.25 for z in pair.vectors(d))
    assert float(x.norm()) == pytest.approx(length, rel=1e-12)
    assert float(y.norm()) == pytest.approx(length, rel=1e-12)
    assert float(x @ y) == pytest.approx(length**2 * cosine, abs=1e-12)
    assert pair.kernel == pytest.approx(math.exp(x @ y), rel=1e-12)
    assert pair.shrunk == pytest.approx(math.exp(-(length**2)), rel=1e-12)


@settings(max_examples=50)
@given(LENGTHS, COSINES, st.integers(2, 8), st.integers(8, 16))
def test_the_formulas_agree_with_one_another(length: float, cosine: float, m: int, d: int) -> None:
    """Of opposite vectors e^(w·x) e^(w·y) is a constant, and of equal ones the cosine is."""
    pair, opposite, equal = (Pair.of(length, c) for c in (cosine, -1, 1))
    assert predicted("positive", opposite, m) == predicted("hyperbolic", opposite, m) == 0
    assert predicted("trigonometric", equal, m) == 0
    positive = predicted("positive", pair, m)
    assert predicted("hyperbolic", pair, m) <= positive / 2
    assert predicted("positive", pair, 2 * m) == pytest.approx(positive / 2)
    assert orthogonal_bound(pair, m, d) <= positive
    assert orthogonal_bound(pair, 1, d) == predicted("positive", pair, 1)


@pytest.mark.parametrize("name", KINDS)
def test_each_direction_gives_what_the_formula_of_the_kind_says(name: str) -> None:
    directions = draw_directions(50, 8, orthogonal=False, seed=0)
    pair = Pair.of(0.7, 0.3)
    x, y = (z[0] / 8**0.25 for z in pair.vectors(8))
    factor = math.exp((x @ x + y @ y) / 2)
    exact = {
        "trigonometric": (directions @ (x - y)).cos() * factor,
        "positive": (directions @ (x + y)).exp() / factor,
        "hyperbolic": (directions @ (x + y)).cosh() / factor,
    }[name]
    estimates = by_direction(KINDS[name], directions, *pair.vectors(8))
    assert torch.allclose(estimates, exact, rtol=1e-12, atol=0)


def test_errors_are_the_mean_square_and_its_standard_error() -> None:
    found = errors_of(torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64), 2.0)
    assert (found.mean, found.square) == (3.0, 4.5)
    # Squares 1, 0, 1, 16: their variance is 59.
    assert found.uncertainty == pytest.approx((59 / 4) ** 0.5)


def test_one_direction_is_as_good_orthogonal_as_not() -> None:
    pair = Pair.of(0.5, 0.0)
    for orthogonal in (False, True):
        found = measure([pair], d=8, m=1, orthogonal=orthogonal, count=20_000, seed=3)
        for name in KINDS:
            of = found[name, pair]
            assert abs(of.square - predicted(name, pair, 1)) <= 4 * of.uncertainty
            assert abs(of.mean - pair.kernel) <= 4 * (of.square / 20_000) ** 0.5


@pytest.mark.parametrize(("m", "d"), [(3, 8), (8, 8), (8, 12)])
def test_orthogonal_directions_keep_the_bound(m: int, d: int) -> None:
    pair = Pair.of(0.5, 0.5)
    of = measure([pair], d=d, m=m, orthogonal=True, count=20_000, seed=5)["positive", pair]
    assert of.square <= orthogonal_bound(pair, m, d) + 4 * of.uncertainty
    assert of.square < predicted("positive", pair, m), "of independent ones"
