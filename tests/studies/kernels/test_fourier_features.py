"""The study `fourier-features`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.kernels.fourier_features import (
    DOCUMENT,
    LENGTH,
    WAVES,
    fourier_features,
    level_exponents,
    normal_exponents,
    predicted_error,
)
from regard.studies.study import Finding

MEDIANS = {
    4: (0.57, 0.29, 0.14, 0.07),
    16: (5.2, 2.6, 1.3, 0.63),
    64: (290.0, 140.0, 72.0, 34.0),
}
"""Of the specification, to within 15 %."""


@pytest.fixture(scope="module")
def finding() -> Finding:
    return fourier_features()


def test_the_verdict(finding: Finding) -> None:
    assert finding.verdict is Verdict.HOLDS


def test_the_numbers_of_the_specification(finding: Finding) -> None:
    measured = {number.name: number.measured for number in finding.numbers}
    for d, medians in MEDIANS.items():
        for m, median in zip(WAVES, medians, strict=True):
            assert measured[f"kernel, D = {d}, {m} waves"] == pytest.approx(median, rel=0.15)
            assert predicted_error(normal_exponents(d, 1), m) == pytest.approx(median, rel=0.15)
    assert measured["output, D = 4, 1024 waves"] < 0.2
    assert measured["output, D = 64, 1024 waves"] > 6


def test_the_document_s_variance_estimates_another_kernel() -> None:
    found = fourier_features(variance=DOCUMENT, draws=20)
    assert found.verdict is Verdict.FAILS
    mean, told = found.numbers[:2]
    assert not mean.holds
    assert mean.measured == told.measured
    assert abs(told.measured) < 0.05, "e^−16, where the kernel is e^−1"


def test_short_queries_and_keys_are_another_matter() -> None:
    found = fourier_features(spread=0.25, draws=20)
    assert found.verdict is Verdict.FAILS
    wrong = {number.name.split(",")[0] for number in found.numbers if not number.holds}
    assert wrong >= {"output", "share of normalizers ≤ 0"}


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(1, 12))
def test_the_error_grows_with_the_width_and_falls_where_lengths_are_fixed(d: int, m: int) -> None:
    """Four times the width, four times the waves."""
    rising, falling = (
        [predicted_error(u(width), 4**m) for width in (d, 4 * d)]
        for u in (lambda width: normal_exponents(width, 1), level_exponents)
    )
    assert rising[0] < rising[1]
    assert falling[0] > falling[1]
    assert predicted_error(normal_exponents(d, 1), 4 ** (m + 1)) == pytest.approx(rising[0] / 2)


@pytest.mark.parametrize("d", [2, 4, 64])
def test_quantiles_are_those_of_drawn_vectors(d: int) -> None:
    random = np.random.default_rng(d)
    query, key = random.standard_normal((2, 40_000, d))
    drawn = ((query - key) ** 2).sum(1) / (2 * d**0.5)
    query, key = (LENGTH * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, key))
    level = ((query - key) ** 2).sum(1) / (2 * d**0.5)
    for sample, quantiles in ((drawn, normal_exponents(d, 1)), (level, level_exponents(d))):
        error = 5 * sample.std() / len(sample) ** 0.5
        assert sample.mean() == pytest.approx(quantiles.mean(), abs=error + 0.01 * sample.mean())
        assert np.median(sample) == pytest.approx(np.median(quantiles), abs=2 * error)
