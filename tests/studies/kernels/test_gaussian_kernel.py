"""Fourier features, and softmax as a Gaussian kernel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention.feature_maps import Fourier
from regard.studies.kernels.gaussian_kernel import (
    NORM,
    draw,
    estimates,
    exponent,
    fixed_norm_exponents,
    fourier_features,
    kernel_noise,
    normal_exponents,
    parts,
    predicted_error,
    rounding,
)
from regard.studies.kernels.heads import draw_heads
from tiny_studies import broken, measured

MEDIANS = {
    4: (0.57, 0.29, 0.14, 0.07),
    16: (5.2, 2.6, 1.3, 0.63),
    64: (290.0, 140.0, 72.0, 34.0),
}
"""Of the kernel, measured independently, to within 15 %."""
OUTPUTS = (1.02, 0.52, 0.26, 0.13)
"""Of attention at D = 4; 0.92 to 1.12 for 16 waves, measured independently."""


@pytest.mark.slow
def test_a_fresh_seed_has_the_stored_verdict_and_the_numbers_of_the_specification() -> None:
    finding = fourier_features(seed=10)
    assert finding.verdict is fourier_features.stored_result().verdict, broken(finding.numbers)
    found = measured(finding)
    for d, medians in MEDIANS.items():
        for m, median in zip((16, 64, 256, 1024), medians, strict=True):
            assert found[f"kernel, D = {d}, {m} waves"] == pytest.approx(median, rel=0.15)
            assert predicted_error(normal_exponents(d, 1), m) == pytest.approx(median, rel=0.15)
    for m, error in zip((16, 64, 256, 1024), OUTPUTS, strict=True):
        assert found[f"output, D = 4, {m} waves"] == pytest.approx(error, rel=0.2)
    assert found["output, D = 64, 1024 waves"] > 6
    for d, power in {4: -0.5, 64: 0}.items():
        name = f"output, exponent of the number of waves, D = {d}"
        assert found[name] == pytest.approx(power, abs=0.05)


@given(st.floats(-2, 2), st.floats(0.1, 10))
def test_an_exponent_is_that_of_a_power(power: float, scale: float) -> None:
    waves = (4, 32, 100)
    errors = [np.full((5, 3), scale * m**power) for m in waves]
    assert exponent(errors, waves) == pytest.approx((power, 0), abs=1e-9)


def test_the_noise_has_the_moments_of_waves() -> None:
    """Estimates by many draws of 4 waves, against mean and covariance of `kernel_noise`."""
    (head,) = draw_heads(1, 4, spread=0.7, seed=1)
    kernel, root = kernel_noise(head)
    drawn = torch.stack(
        [
            estimates(
                draw(Fourier, 4, 4, "1/σ²", seed),
                head.query[0, 0, :1].expand(64, 4),
                head.key[0, 0],
            )
            for seed in range(4000)
        ]
    )
    covariance = root[0] @ root[0].mT / 4
    assert (drawn.mean(0) - kernel[0]).abs().max() < 5 * (0.5 / 4 / 4000) ** 0.5
    assert (drawn.T.cov() - covariance).abs().max() < 5 * 0.125 * (2 / 4000) ** 0.5


@pytest.mark.parametrize("d", [2, 4, 64])
def test_quantiles_are_those_of_drawn_vectors(d: int) -> None:
    random = np.random.default_rng(d)
    query, key = random.standard_normal((2, 40_000, d))
    drawn = ((query - key) ** 2).sum(1) / (2 * d**0.5)
    query, key = (NORM * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, key))
    level = ((query - key) ** 2).sum(1) / (2 * d**0.5)
    for sample, quantiles in ((drawn, normal_exponents(d, 1)), (level, fixed_norm_exponents(d))):
        error = 5 * sample.std() / len(sample) ** 0.5
        assert sample.mean() == pytest.approx(quantiles.mean(), abs=error + 0.01 * sample.mean())
        assert np.median(sample) == pytest.approx(np.median(quantiles), abs=2 * error)


@settings(max_examples=30)
@given(st.integers(1, 64), st.floats(0.1, 4), st.integers(0, 2**32 - 1))
def test_the_exponents_add_up_to_the_score(d: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = spread * torch.randn(2, 5, d, generator=generator, dtype=torch.float64)
    gauss, of_query, of_key = parts(query, key, d**0.5)
    for i in range(5):
        for j in range(5):
            score = float(query[i] @ key[j]) / d**0.5
            together = float(of_query[i, 0] + gauss[i, j] + of_key[j])
            assert together == pytest.approx(score, abs=rounding(query, key, d**0.5))
