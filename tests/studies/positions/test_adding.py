"""The study `adding`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.positions.position_vectors import (
    adding,
    cross_terms,
    draw_pairs,
    score_errors,
)


@settings(max_examples=20)
@given(st.integers(1, 40), st.floats(0.1, 2), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_the_terms_are_those_of_any_draw(half: int, sigma: float, steps: int, seed: int) -> None:
    pairs = draw_pairs(5, 2 * half, sigma, steps, torch.Generator().manual_seed(seed))
    assert max(score_errors(pairs)) < 1e-9


def test_cross_terms_are_what_concatenation_lacks() -> None:
    x1, p1, x2, p2 = pairs = draw_pairs(6, 8, 1.0, 2, torch.Generator().manual_seed(0))
    whole = ((x1 + p1) * (x2 + p2)).sum(-1)
    beside = (torch.cat([x1, p1], -1) * torch.cat([x2, p2], -1)).sum(-1)
    torch.testing.assert_close(whole - beside, cross_terms(pairs))


def test_the_verdict() -> None:
    assert adding().verdict is Verdict.HOLDS
    assert adding(d=16).verdict is Verdict.FAILS, "too narrow: a quarter of x·x"
    assert adding(sigma=0.1).verdict is Verdict.FAILS, "words too small beside positions"


def test_beside_two_different_words_they_are_not_small() -> None:
    measured = {number.name: number.measured for number in adding(d=64).numbers}
    ratio = measured["cross terms / x₁·x₂ of two different words"]
    assert ratio == pytest.approx(1, abs=4 / math.sqrt(2000))
