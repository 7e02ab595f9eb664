"""The study scale."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import Softmax
from regard.studies.scaling.scale import Draw, moments, scale, spread
from tiny_studies import measured


@settings(max_examples=10)
@given(st.integers(2, 64), st.floats(-1, 1), st.floats(0.2, 4), st.integers(0, 2**32 - 1))
def test_the_formulas_are_those_of_the_draw(h: int, mean: float, sigma: float, seed: int) -> None:
    draw = Draw(mean, sigma, 0.0, seed)
    query, key = draw.pairs(h, 4000)
    products = (query * key).sum(-1)
    # Five standard errors: at most one in a million draws is outside.
    error = 5 * math.sqrt(draw.variance(h) / 4000)
    assert float(products.mean()) == pytest.approx(h * mean**2, abs=error)
    centered = products - products.mean()
    error = (
        5 * float(centered.pow(4).mean() - centered.square().mean() ** 2) ** 0.5 / math.sqrt(4000)
    )
    assert float(products.var()) == pytest.approx(draw.variance(h), abs=error)


def test_the_gradient_is_the_trace_of_the_jacobian() -> None:
    draw, n = Draw(0.0, 1.0, 0.0, 3), 16
    queries, keys = draw.pairs(4, 8, 1, 32)
    scores = (queries @ keys[:, :, :n].mT / 2).flatten(0, 2)
    jacobians = [torch.func.jacrev(lambda s: s.softmax(-1))(row) for row in scores]
    traces = torch.stack([jacobian.trace() for jacobian in jacobians])
    assert spread(draw, 4, n, Softmax())["gradient"] == pytest.approx(
        float(traces.mean()), rel=1e-12
    )


def test_half_of_the_part_of_the_mean_is_the_same_for_all_keys_of_a_query() -> None:
    draw, h = Draw(1.0, 1.0, 0.0, 0), 64
    query, key = draw.pairs(h, 200, 100)
    among = torch.einsum("qh,qkh->qk", query[:, 0], key).var(1)
    assert float(among.mean()) == pytest.approx(
        draw.among_keys(h), abs=5 * float(among.std()) / math.sqrt(200)
    )


def test_moments_can_fail() -> None:
    products = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert [number.holds for number in moments(products, 0.0, 1.0)] == [True, True]
    assert [number.holds for number in moments(products, 0.1, 1.2)] == [False, False]


def test_a_doubled_sigma_makes_the_weights_sharper_in_spite_of_the_division() -> None:
    found, doubled = (measured(scale(sigma=sigma, mean=0.0)) for sigma in (1.0, 2.0))
    for name in ("entropy, scaled, h = 1024", "gradient, scaled, h = 1024"):
        assert found[f"{name}, σ doubled"] == doubled[name] < 0.7 * found[name]
