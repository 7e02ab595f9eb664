"""The study `shifting`."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.positions import Sinusoidal
from regard.studies.finding import Verdict
from regard.studies.positions.position_vectors import (
    shift_error,
    shifting,
    wavelengths,
)


@settings(max_examples=30)
@given(st.integers(2, 256))
def test_the_spans_are_those_of_the_formula(half: int) -> None:
    d = 2 * half
    for first in (0, 1):
        formula = [2 * math.pi * 10_000 ** (2 * (first + i) / d) for i in range(half)]
        assert wavelengths(first, d) == pytest.approx(formula, rel=1e-9)


@settings(max_examples=20)
@given(st.integers(2, 64), st.integers(1, 1000), st.integers(2, 1000))
def test_one_matrix_moves_every_position(half: int, steps: int, length: int) -> None:
    vectors = Sinusoidal(length=length + steps, d=2 * half).vectors
    # What float64 rounds off an angle of up to length + steps.
    assert shift_error(vectors, steps) <= 4 * 2**-52 * (length + steps)


def test_vectors_that_are_no_waves_have_no_such_matrix() -> None:
    assert shifting(encoding="random").verdict is Verdict.FAILS


def test_the_verdict_and_the_ends_of_both_counts() -> None:
    finding = shifting(d=128)
    assert finding.verdict is Verdict.HOLDS
    measured = {number.name: number.measured for number in finding.numbers}
    off = 10_000 ** (1 / 64)
    assert off == pytest.approx(1.15, abs=0.01), "as the correction says"
    assert measured["shortest wavelength / 2π, k from 1"] == pytest.approx(off)
    assert measured["longest wavelength / (10000·2π), k from 0"] == pytest.approx(1 / off)
    assert shifting.corrections[0].course == "eecs182-disc8"
