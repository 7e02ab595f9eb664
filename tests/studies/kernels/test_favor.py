"""Estimates of random features, and their errors in theory."""

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
    favor,
    orthogonal_bound,
    predicted,
)
from tiny_studies import broken, measured

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


@settings(max_examples=50)
@given(LENGTHS, COSINES, st.integers(2, 8), st.integers(8, 16))
def test_formulas_of_errors_agree(length: float, cosine: float, m: int, d: int) -> None:
    """Positive features of opposite vectors are constant, and waves of equal vectors are."""
    pair, opposite, equal = (Pair.of(length, c) for c in (cosine, -1, 1))
    assert predicted("positive", opposite, m) == predicted("hyperbolic", opposite, m) == 0
    assert predicted("trigonometric", equal, m) == 0
    positive = predicted("positive", pair, m)
    assert predicted("hyperbolic", pair, m) <= positive / 2
    for name in KINDS:
        assert predicted(name, pair, 2 * m) == pytest.approx(predicted(name, pair, m) / 2)
    assert orthogonal_bound(pair, m, d) <= positive
    assert orthogonal_bound(pair, 1, d) == predicted("positive", pair, 1)
    assert orthogonal_bound(equal, m, d) < predicted("positive", equal, m)


def test_errors_are_the_mean_square_and_its_standard_error() -> None:
    found = errors_of(torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64), 2.0)
    assert (found.mean, found.square) == (3.0, 4.5)
    # Squares 1, 0, 1, 16: their variance is 59.
    assert found.uncertainty == pytest.approx((59 / 4) ** 0.5)


def test_neither_long_vectors_nor_short_queries_are_approximated() -> None:
    """Exponentials of long vectors have heavy tails; cosines have none."""
    wrong = broken(favor(count=20_000, length=1.5, spread=0.25).numbers)
    errors = [name for name in wrong if name.startswith("MSE")]
    assert any(name.endswith("features, cosine 0.8") for name in errors)
    assert not any("trigonometric" in name for name in errors)
    assert "error of FAVOR+ / error of the mean of the values, d = 64, 1024 directions" in wrong
    assert any(name.startswith("share of sums of weights ≤ 0") for name in wrong)


def test_what_the_document_writes_is_not_the_kernel() -> None:
    found = favor(count=20_000)
    assert broken(found.numbers) == []
    right, *wrong = (x for name, x in measured(found).items() if "/ kernel" in name)
    assert right == pytest.approx(1, abs=0.02)
    assert all(abs(ratio - 1) > 0.3 for ratio in wrong)
