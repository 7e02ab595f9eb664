"""Right or wrong, and whether confidence knows it: against the definitions, spelled out."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, permutations
from math import exp, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.metrics import (
    auroc,
    auroc_interval,
    exact_match,
    perplexity,
    risk_coverage,
    wilson,
)

EPS = float(np.finfo(float).eps)
checked = settings(deadline=None, derandomize=True, max_examples=100)
# Few values, so that there are ties; and those that a log-probability may take.
scores = st.lists(st.sampled_from([-inf, -2.0, -0.5, 0.0, 1e-9, 1.0]), min_size=1, max_size=12)
answers = st.lists(
    st.tuples(st.sampled_from([-inf, -1.0, 0.0, 0.5, 1.0]), st.booleans()), min_size=1, max_size=6
)


# Exact match


@pytest.mark.parametrize(
    ("predicted", "answer", "right"),
    [
        ("London", "London", True),
        (" London\n", "London", True),
        ("London", "\tLondon ", True),
        ("london", "London", False),
        ("Lon don", "London", False),
        ("", "London", False),
        (None, "London", False),
        (None, "", False),
    ],
)
def test_a_match_is_exact_but_for_white_space_at_the_ends(
    predicted: str | None, answer: str, right: bool
) -> None:
    assert exact_match(predicted, answer) is right


# AUROC


@checked
@given(positive=scores, negative=scores)
def test_auroc_is_the_share_of_pairs_in_order_ties_counting_half(
    positive: list[float], negative: list[float]
) -> None:
    points = sum(Fraction(1 + (p > n) - (p < n), 2) for p in positive for n in negative)
    share = points / (len(positive) * len(negative))
    # Ranks are exact; only the quotient is rounded.
    assert auroc(positive, negative) == pytest.approx(float(share), rel=EPS, abs=0)


@checked
@given(
    positive=st.lists(st.floats(-1, 1), min_size=2, max_size=8),
    negative=st.lists(st.floats(-1, 1), min_size=2, max_size=8),
)
def test_the_interval_of_auroc_is_delongs(positive: list[float], negative: list[float]) -> None:
    """Against the definition: variances of the means over the other group (DeLong, 1988, eq. 5)."""
    order = np.array([[(1 + (p > n) - (p < n)) / 2 for n in negative] for p in positive])
    area, (m, n) = order.mean(), order.shape
    found = auroc_interval(positive, negative)
    assert found.value == pytest.approx(area, rel=8 * EPS)
    if len(np.unique(order)) == 1:
        assert found == wilson(area * min(m, n), min(m, n)), "not without width"
        return
    variance = order.mean(1).var(ddof=1) / m + order.mean(0).var(ddof=1) / n
    half = 1.959963984540054 * variance**0.5
    ends = (max(0, area - half), min(1, area + half))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-12, abs=1e-12)


# Risk and coverage


def risk_by_definition(answers: Sequence[tuple[float, bool]]) -> list[float]:
    """Mean risk over all orders in which equal confidence may be answered."""
    orders = [
        [wrong for _, wrong in order]
        for order in permutations([(score, not right) for score, right in answers])
        if all(a[0] >= b[0] for a, b in pairwise(order))
    ]
    return [
        float(sum(Fraction(sum(order[:k]), k) for order in orders) / len(orders))
        for k in range(1, len(answers) + 1)
    ]


@checked
@given(answers=answers)
def test_risk_is_the_mean_over_all_orders_of_falling_confidence(
    answers: list[tuple[float, bool]],
) -> None:
    coverage, risk = risk_coverage(*map(list, zip(*answers, strict=True)))
    n = len(answers)
    assert coverage.tolist() == [k / n for k in range(1, n + 1)]
    # Each of up to six additions is rounded.
    assert risk.tolist() == pytest.approx(risk_by_definition(answers), rel=8 * EPS, abs=8 * EPS)


# Perplexity


@checked
@given(documents=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100)), min_size=1, max_size=8))
def test_perplexity_is_of_tokens_not_of_documents(documents: list[tuple[float, int]]) -> None:
    losses, counts = [mean * n for mean, n in documents], [n for _, n in documents]
    interval = perplexity(losses, counts)
    # Sums of eight numbers, rounded, and their quotient below 5 through the exponential.
    assert interval.value == pytest.approx(exp(sum(losses) / sum(counts)), rel=64 * EPS)
    means = [exp(mean) for mean, _ in documents]
    slack = 1 + 64 * EPS
    assert min(means) / slack <= interval.low <= interval.high <= max(means) * slack
