"""Averaging, copying, and products by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.single_head.one_head import (
    copied,
    draw_heads,
    key_weights,
    selected_weight,
)


@settings(max_examples=20)
@given(st.integers(2, 60), st.integers(8, 24), st.floats(0, 50), st.integers(0, 2**32 - 1))
def test_no_keys_are_below_the_bound(n: int, d: int, m: float, seed: int) -> None:
    weights, errors = copied(draw_heads(n, d, seed), m)
    assert weights.min() >= selected_weight(n, m, selected=1) - 1e-8
    assert errors.max() <= 1 - selected_weight(n, m, selected=1) + 1e-8


def test_the_queries_lead_by_one() -> None:
    query, key, _ = draw_heads(7, 8, seed=3)
    products = (query @ key.mT)[:, 0, 0]
    lead = products[:, 0] - products[:, 1:].amax(-1)
    assert lead.tolist() == pytest.approx([1.0] * len(lead), abs=1e-9)


@settings(max_examples=30)
@given(st.integers(3, 300), st.floats(0, 50), st.integers(1, 2))
def test_the_formula_is_what_attention_does(n: int, t: float, selected: int) -> None:
    weights = key_weights(n, t, selected)
    assert weights[0] == pytest.approx(selected_weight(n, t, selected), rel=1e-12)
