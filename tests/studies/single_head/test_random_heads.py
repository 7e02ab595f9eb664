"""The study `random-heads`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.single_head.random_heads import (
    averaged_weight,
    diagonal_numbers,
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
def test_the_formulas_are_near_what_is_measured(h: int, n: int, seed: int) -> None:
    by_formula, averaged = diagonal_numbers(equal_maps(h, n, seed), h)
    assert by_formula.holds
    assert averaged.holds


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
