"""Ranks and what is made of them, against sorted lists and exact fractions."""

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.metrics import mean_reciprocal_rank, ranks, recall_at, wilson

EPS = float(np.finfo(float).eps)
checked = settings(deadline=None, derandomize=True, max_examples=50)
sizes = st.tuples(st.integers(1, 5), st.integers(1, 6))
# Few values, so that there are ties.
score = st.sampled_from([-inf, -1.0, 0.0, 0.5, 1.0, inf])
some_ranks = st.lists(st.integers(1, 20), min_size=1, max_size=10)


@st.composite
def queries(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and the right document of each query."""
    n_queries, n_documents = draw(sizes)
    scores = draw(arrays(float, (n_queries, n_documents), elements=score))
    return scores, draw(arrays(int, n_queries, elements=st.integers(0, n_documents - 1)))


# Ranks


@checked
@given(queries())
def test_a_rank_is_the_last_place_among_equals(queries: tuple[np.ndarray, np.ndarray]) -> None:
    scores, right = queries
    expected = [
        max(place for place, s in enumerate(sorted(row, reverse=True), start=1) if s == row[i])
        for row, i in zip(scores.tolist(), right.tolist(), strict=True)
    ]
    assert ranks(scores, right).tolist() == expected


@pytest.mark.parametrize(
    ("row", "rank"), [([nan, 0.0, 1.0], 3), ([0.5, nan, 0.0], 2), ([nan, nan, nan], 3)]
)
def test_a_score_that_is_not_a_number_counts_against(row: list[float], rank: int) -> None:
    assert ranks(np.array([row]), np.array([0])).tolist() == [rank]


# Recall


@checked
@given(some_ranks, st.integers(1, 20))
def test_recall_is_the_share_of_the_first_k(some: list[int], k: int) -> None:
    assert recall_at(np.array(some), k) == wilson(sum(rank <= k for rank in some), len(some))


# Mean reciprocal rank


@checked
@given(some_ranks)
def test_mean_reciprocal_rank_is_what_it_says(some: list[int]) -> None:
    interval = mean_reciprocal_rank(np.array(some))
    exact = sum(Fraction(1, rank) for rank in some) / len(some)
    # Ten quotients, added.
    assert interval.value == pytest.approx(float(exact), rel=12 * EPS)
    slack = 1 + 12 * EPS
    assert 1 / max(some) / slack <= interval.low <= interval.high <= slack / min(some)
