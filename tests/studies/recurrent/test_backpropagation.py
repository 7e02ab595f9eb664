"""The study `backpropagation`."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.italics import plain
from regard.studies.finding import Verdict
from regard.studies.recurrent.backpropagation import (
    backpropagation_through_time as study,
)


def drawn_rows(seed: int, *shape: int) -> Any:
    draw = np.random.default_rng([seed, *shape])
    return tuple(map(tuple, draw.uniform(-1, 1, shape).round(3).tolist()))


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 4), st.integers(0, 99))
def test_the_formulas_are_what_autograd_finds(steps: int, d: int, out: int, seed: int) -> None:
    finding = study(
        w_hx=drawn_rows(seed, d, 2),
        w_hh=drawn_rows(seed, d, d),
        w_yh=drawn_rows(seed, out, d),
        x=drawn_rows(seed, steps, 2),
        y=((0.25, 0.75, *[0.0] * (out - 2)),) * steps,
    )
    assert finding.verdict is Verdict.HOLDS


def test_the_gradient_of_w_hh_by_hand() -> None:
    """Two steps of a network of one state: only h₂ = w·h₁ + x₂ depends on w."""
    finding = study(
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
    finding = study()
    assert finding.table is not None
    formulas = {row[0]: row[1] for row in finding.table.rows}
    assert formulas["∂J2/∂o2"] == "ŷ2 − y2"
    assert formulas["∂J3/∂h1"] == "W_hhᵀ W_hhᵀ W_yhᵀ g_o3"
    assert formulas["∂J3/∂W_hh"] == "g_h2 h1ᵀ + g_h3 h2ᵀ"
    assert plain(finding.svg()).count(">hh<") == 3, "one for each step"
    assert "W_hx is 4×3, W_hh 4×4, W_yh 2×4" in finding.caption


def test_the_verdict() -> None:
    assert study().verdict is Verdict.HOLDS
    assert study(activation="tanh").verdict is Verdict.FAILS, "each step has a factor 1 − h²"
    unnormalized = ((1.0, 0.0), (0.0, 1.0), (0.6, 0.7))
    assert study(y=unnormalized).verdict is Verdict.FAILS, "y sums to 1.3"


def test_what_the_document_leaves_out_changes_the_gradients() -> None:
    """Labels that sum to 1 and h₀ = 0: without either, the formulas are wrong by far."""
    labels, first_state = study().numbers[-2:]
    assert labels.holds
    assert first_state.holds
    assert min(labels.measured, first_state.measured) > 0.5
    assert len(study.corrections) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("w_hh=[[1]]", "w_hh: is 1×1, which doesn't fit the others; make it 4×4"),
        ("w_yh=[[1,2]]", "make it 1×4"),
        ("x=[[1,2],[1]]", "rows of 2, 1 numbers"),
        ("x=[[1,2]]", "make it 1×3"),
        ("y=[[1],[0],[0]]", "make it 3×2"),
        ("y=[[1,0]]", "y: is 1×2, .*; make it 3×2"),
        ("x=[[9,9,9]]", "<= 2"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        study.with_texts([wrong])
