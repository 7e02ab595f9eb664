"""Masks, and heads with random weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from regard.studies.single_head.attention_maps import (
    by_formula,
    equal_maps,
    formula_weight,
    four_masks,
    weights_for_equal_scores,
)

TEXTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4)


@given(TEXTS, st.data())
def test_the_maps_are_what_their_names_say(
    texts: list[tuple[int, int]], data: st.DataObject
) -> None:
    sources, targets = (tuple(lengths) for lengths in zip(*texts, strict=True))
    row = data.draw(st.integers(1, len(texts)))
    source, target = texts[row - 1]
    n, m = range(max(sources)), range(max(targets))
    expected = {
        "encoder padding": [[j < length for j in n] for length in sources],
        "decoder padding": [[j < length for j in m] for length in targets],
        "cross-attention": [[j < source for j in n] for _ in m],
        "decoder self-attention": [[j <= i and j < target for j in m] for i in m],
    }
    masks = four_masks(sources, targets, row)
    assert masks.keys() == expected.keys()
    for name, (mask, queries, keys, allowed) in masks.items():
        attended = weights_for_equal_scores(mask, queries, keys) > 0
        assert attended.tolist() == expected[name]
        assert int(attended.sum()) == allowed


@settings(max_examples=25)
@given(st.integers(2, 64), st.integers(2, 40), st.integers(0, 2**31))
def test_the_formula_is_near_what_is_measured(h: int, n: int, seed: int) -> None:
    assert by_formula(equal_maps(h, n, seed), h).holds


def averaged_weight(h: int, n: int) -> float:
    """The mean diagonal weight over quantiles of ‖q‖², with the others at their mean."""
    squares = chi2.ppf((np.arange(4000) + 0.5) / 4000, h)
    return float((1 / (1 + (n - 1) * np.exp(squares / (2 * h) - squares / h**0.5))).mean())


@pytest.mark.parametrize("h", [8, 16, 32, 64, 128, 256])
def test_the_formula_is_near_the_average(h: int) -> None:
    for n in (20, 128, 512):
        assert formula_weight(h, n) == pytest.approx(averaged_weight(h, n), abs=0.012)
