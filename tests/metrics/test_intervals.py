"""Intervals: Wilson's against scipy's, the bootstrap's against the standard error."""

import tracemalloc
from dataclasses import astuple
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from regard.metrics import Z95, Interval, accuracy, bootstrap, bootstrap_means, wilson

EPS = float(np.finfo(float).eps)
checked = settings(deadline=None, derandomize=True, max_examples=100)


@st.composite
def shares(draw: st.DrawFn) -> tuple[int, int]:
    """Successes among trials."""
    n = draw(st.integers(1, 10_000))
    return draw(st.sampled_from([0, n]) | st.integers(0, n)), n


@checked
@given(share=shares())
def test_wilson_s_interval_is_scipy_s(share: tuple[int, int]) -> None:
    successes, n = share
    interval, theirs = wilson(successes, n), binomtest(successes, n).proportion_ci(method="wilson")
    # Near 0 and 1 both sides lose a few digits by subtracting.
    assert interval.low == pytest.approx(theirs.low, rel=0, abs=16 * EPS)
    assert interval.high == pytest.approx(theirs.high, rel=0, abs=16 * EPS)
    assert interval.value == successes / n
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.low < interval.high


def test_accuracy_is_the_share_of_right_answers() -> None:
    assert accuracy([True, False, True, True]) == wilson(3, 4)


# The bootstrap


def mean(values: np.ndarray) -> float:
    return float(values.mean())


def test_the_bootstrap_holds_one_draw_at_a_time() -> None:
    values = np.zeros(20_000)
    tracemalloc.start()
    bootstrap(values, mean, draws=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * values.nbytes


def test_means_of_columns_have_the_intervals_of_each_alone() -> None:
    columns = np.random.default_rng(0).normal(size=(17, 3))
    found = [astuple(one) for one in bootstrap_means(columns)]
    alone = [astuple(bootstrap(column, mean)) for column in columns.T]
    assert np.allclose(found, alone, rtol=0, atol=1e-12)


def test_the_bootstrap_of_a_mean_is_about_1_96_standard_errors_to_either_side() -> None:
    values = np.random.default_rng(0).normal(size=400)
    interval = bootstrap(values, mean, draws=4000)
    assert interval.value == mean(values)
    error = Z95 * values.std() / sqrt(len(values))
    # The quantiles of 4000 draws have a standard error of about 4 % of the distance.
    assert interval.low == pytest.approx(interval.value - error, abs=0.15 * error)
    assert interval.high == pytest.approx(interval.value + error, abs=0.15 * error)


def test_whole_examples_are_drawn() -> None:
    """Rows of several numbers stay together."""
    pairs = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    interval = bootstrap(pairs, lambda rows: float((rows[:, 1] / rows[:, 0]).mean()))
    assert interval == Interval(10.0, 10.0, 10.0)


def test_an_interval_prints_for_people() -> None:
    interval = Interval(0.25, 0.1, 0.5)
    assert str(interval) == "0.250 [0.100, 0.500]"
    assert interval.percent() == "25.0% [10.0%, 50.0%]"
