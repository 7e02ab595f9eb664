"""The study `random-heads`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from regard.studies.finding import Verdict
from regard.studies.single_head.attention_maps import (
    by_formula,
    diagonal_weight,
    equal_maps,
    formula_weight,
    random_heads,
    random_maps,
)
from tiny_studies import verdict

SIZES = (st.integers(2, 64), st.integers(2, 40), st.integers(0, 2**31))


@settings(max_examples=20)
@given(*SIZES)
def test_weights_add_up_over_the_keys(h: int, n: int, seed: int) -> None:
    assert (random_maps(h, n, seed).sum(-1) - 1).abs().max() < 1e-12


@settings(max_examples=25)
@given(*SIZES)
def test_the_formula_is_near_what_is_measured(h: int, n: int, seed: int) -> None:
    assert by_formula(equal_maps(h, n, seed), h).holds


def averaged_weight(h: int, n: int) -> float:
    """The mean diagonal weight over quantiles of ‖q‖², with the others at their mean."""
    squares = chi2.ppf((np.arange(4000) + 0.5) / 4000, h)
    return float((1 / (1 + (n - 1) * np.exp(squares / (2 * h) - squares / h**0.5))).mean())


def test_the_numbers_of_the_specification() -> None:
    assert diagonal_weight(equal_maps(64, 20, seed=0)) == pytest.approx(0.98, abs=0.005)
    assert diagonal_weight(equal_maps(8, 128, seed=0)) == pytest.approx(0.12, abs=0.006)
    assert averaged_weight(64, 20) == pytest.approx(0.98, abs=0.005)
    assert averaged_weight(8, 128) == pytest.approx(0.12, abs=0.006)


@pytest.mark.parametrize("h", [8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("n", [20, 128, 512])
def test_the_formula_is_near_the_average(h: int, n: int) -> None:
    assert formula_weight(h, n) == pytest.approx(averaged_weight(h, n), abs=0.012)


def test_the_verdict() -> None:
    assert random_heads().verdict is Verdict.CONDITIONAL, "e^√8 isn't far above 128√e"
    assert verdict(random_heads, "h_beyond=128", "n_beyond=8") is Verdict.HOLDS
    assert verdict(random_heads, "h=8") is Verdict.FAILS, "the queries are too short"
    assert verdict(random_heads, "n=300") is Verdict.FAILS, "there are too many tokens"
