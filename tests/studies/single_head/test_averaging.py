"""The study `averaging`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.single_head.one_head import averaging, key_weights, selected_weight


@settings(max_examples=30)
@given(st.integers(3, 300), st.floats(0, 40))
def test_the_formula_is_what_attention_does(n: int, t: float) -> None:
    weights = key_weights(n, t, selected=2)
    assert weights[0] == pytest.approx(selected_weight(n, t, selected=2), rel=1e-12)
    assert weights[:2].sum() + weights[2:].sum() == pytest.approx(1, abs=1e-12)


def test_the_verdict() -> None:
    assert averaging().verdict is Verdict.HOLDS
    assert averaging(t=1).verdict is Verdict.FAILS, "too short a query"
    assert averaging(n=2048).verdict is Verdict.FAILS, "too many keys for it"
