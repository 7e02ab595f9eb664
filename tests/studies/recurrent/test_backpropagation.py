"""Gradients through time."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.italics import plain
from regard.studies.finding import Verdict
from regard.studies.recurrent.backpropagation import (
    backpropagation_through_time,
    backward,
    gradient_norm,
    overflow,
    predicted,
    transition,
)
from tiny_studies import broken


def drawn_rows(seed: int, *shape: int) -> Any:
    draw = np.random.default_rng([seed, *shape])
    return tuple(map(tuple, draw.uniform(-1, 1, shape).round(3).tolist()))


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 4), st.integers(0, 99))
def test_the_formulas_are_what_autograd_finds(steps: int, d: int, out: int, seed: int) -> None:
    finding = backpropagation_through_time(
        w_hx=drawn_rows(seed, d, 2),
        w_hh=drawn_rows(seed, d, d),
        w_yh=drawn_rows(seed, out, d),
        x=drawn_rows(seed, steps, 2),
        y=((0.25, 0.75, *[0.0] * (out - 2)),) * steps,
    )
    assert finding.verdict is Verdict.HOLDS


def test_the_gradient_of_w_hh_by_hand() -> None:
    """Two steps of a network of one state: only h₂ = w·h₁ + x₂ depends on w."""
    finding = backpropagation_through_time(
        w_hx=((1.0,),),
        w_hh=((0.5,),),
        w_yh=((1.0,), (0.0,)),
        x=((2.0,), (1.0,)),
        y=((1.0, 0.0), (0.0, 1.0)),
    )
    h_1, h_2 = 2.0, 0.5 * 2.0 + 1.0
    probability = float(torch.tensor(h_2).sigmoid())
    assert finding.table is not None
    assert finding.table.rows[-1][-1] == f"[{probability * h_1:.3f}]"
    assert finding.verdict is Verdict.HOLDS


def test_the_table_says_all_gradients() -> None:
    finding = backpropagation_through_time()
    assert finding.table is not None
    formulas = {row[0]: row[1] for row in finding.table.rows}
    assert formulas["∂J2/∂o2"] == "ŷ2 − y2"
    assert formulas["∂J3/∂h1"] == "W_hhᵀ W_hhᵀ W_yhᵀ g_o3"
    assert formulas["∂J3/∂W_hh"] == "g_h2 h1ᵀ + g_h3 h2ᵀ"
    assert plain(finding.svg()).count(">hh<") == 3, "one for each step"
    assert "W_hx is 4×3, W_hh 4×4, W_yh 2×4" in finding.caption


def test_what_the_document_leaves_out_changes_the_gradients() -> None:
    """Labels that sum to 1 and h₀ = 0: without either, the formulas are wrong by far."""
    labels, first_state = backpropagation_through_time().numbers[-2:]
    assert broken((labels, first_state)) == []
    assert min(labels.measured, first_state.measured) > 0.5


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


def test_a_nilpotent_matrix_stretches_once() -> None:
    nilpotent = transition(0.0, 10.0)
    # A singular value is off by a few roundings of the largest.
    ten = pytest.approx(10, rel=8 * torch.finfo(torch.float64).eps)
    assert float(torch.linalg.matrix_norm(nilpotent, 2)) == ten
    assert [gradient_norm(nilpotent, steps) for steps in (1, 2)] == [ten, 0]


def test_gradients_of_powers_grow_until_they_overflow() -> None:
    assert broken(overflow()) == []
    for steps in (2, 5, 20):
        network, loss = backward(1.5, steps)
        assert loss == pytest.approx(1.5 ** (steps - 1), rel=1e-5)
        slope = (steps - 1) * 1.5 ** (steps - 2)
        assert float(network["w"].grad) == pytest.approx(slope, rel=1e-5)
