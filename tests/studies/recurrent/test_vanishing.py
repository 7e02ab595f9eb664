"""The study `vanishing`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.recurrent.backpropagation import (
    backward,
    gradient_norm,
    overflow,
    predicted,
    transition,
)
from regard.studies.recurrent.backpropagation import vanishing_and_exploding as study


@given(st.floats(0, 2), st.floats(0.01, 10))
def test_radius_and_singular_value_are_set_apart(radius: float, stretch: float) -> None:
    w = transition(radius, stretch)
    # A double eigenvalue is known to half of the digits only.
    assert float(torch.linalg.eigvals(w).abs().max()) == pytest.approx(radius, abs=1e-6)
    assert float(torch.linalg.matrix_norm(w, 2)) == pytest.approx(max(radius, stretch), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 2), st.floats(0.1, 10), st.integers(1, 20))
def test_the_formula_is_what_autograd_finds(radius: float, stretch: float, steps: int) -> None:
    measured = gradient_norm(transition(radius, stretch), steps)
    assert measured == pytest.approx(predicted(radius, stretch, steps), rel=1e-9, abs=1e-30)


@pytest.mark.parametrize("steps", [2, 5, 20])
def test_the_gradient_of_a_power(steps: int) -> None:
    network, loss = backward(1.5, steps)
    assert loss == pytest.approx(1.5 ** (steps - 1), rel=1e-5)
    slope = (steps - 1) * 1.5 ** (steps - 2)
    assert float(network["w"].grad) == pytest.approx(slope, rel=1e-5)


def test_every_step_of_the_overflow_holds() -> None:
    assert [number.name for number in overflow() if not number.holds] == []


def test_a_nilpotent_matrix_stretches_once() -> None:
    nilpotent = transition(0.0, 10.0)
    # A singular value is off by a few roundings of the largest.
    ten = pytest.approx(10, rel=8 * torch.finfo(torch.float64).eps)
    assert float(torch.linalg.matrix_norm(nilpotent, 2)) == ten
    assert gradient_norm(nilpotent, 1) == ten
    assert gradient_norm(nilpotent, 2) == 0


def test_the_verdict() -> None:
    assert study().verdict is Verdict.HOLDS
    assert study(radii=(0.9,), steps=20).verdict is Verdict.FAILS, "at first it has grown"
    assert study(radii=(0.99,), steps=100).verdict is Verdict.FAILS, "near 1 it takes longer"


def test_powers_may_underflow() -> None:
    finding = study(radii=(0.0, 1e-3), stretches=(1e-3,), steps=300)
    assert finding.verdict is Verdict.HOLDS
    assert finding.svg()
