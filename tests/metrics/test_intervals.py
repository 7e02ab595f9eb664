"""Intervals: Wilson's against his equation and tables, the bootstrap against what it promises."""

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
def test_the_ends_of_wilson_s_interval_solve_his_equation(share: tuple[int, int]) -> None:
    """(s/n - p)² = z² p (1 - p) / n."""
    successes, n = share
    interval = wilson(successes, n)
    for p in (interval.low, interval.high):
        residual = (successes / n - p) ** 2 - Z95**2 * p * (1 - p) / n
        # A few roundings of numbers below 1 + z²/n.
        assert abs(residual) <= 16 * EPS * (1 + Z95**2 / n)


@checked
@given(share=shares())
def test_wilson_s_interval_is_scipy_s(share: tuple[int, int]) -> None:
    successes, n = share
    interval, theirs = wilson(successes, n), binomtest(successes, n).proportion_ci(method="wilson")
    # Near 0 and 1 both sides lose a few digits by subtracting.
    assert interval.low == pytest.approx(theirs.low, rel=0, abs=16 * EPS)
    assert interval.high == pytest.approx(theirs.high, rel=0, abs=16 * EPS)


@checked
@given(share=shares())
def test_wilson_s_interval_holds_the_share_and_lies_between_0_and_1(share: tuple[int, int]) -> None:
    successes, n = share
    interval = wilson(successes, n)
    assert interval.value == successes / n
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.low < interval.high


@checked
@given(share=shares())
def test_failures_mirror_successes(share: tuple[int, int]) -> None:
    successes, n = share
    one, other = wilson(successes, n), wilson(n - successes, n)
    assert one.low == pytest.approx(1 - other.high, rel=0, abs=16 * EPS)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe, 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval_is_that_of_the_literature(
    successes: int, n: int, low: float, high: float
) -> None:
    interval = wilson(successes, n)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="at least one trial"):
        accuracy([])


def test_accuracy_is_the_share_of_right_answers() -> None:
    assert accuracy([True, False, True, True]) == wilson(3, 4)


# The bootstrap


def mean(values: np.ndarray) -> float:
    return float(values.mean())


def test_the_bootstrap_repeats_itself_and_listens_to_its_seed() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert bootstrap(values, mean, seed=1) == bootstrap(values, mean, seed=1)
    assert bootstrap(values, mean, seed=1) != bootstrap(values, mean, seed=2)


def test_means_of_columns_have_the_intervals_of_each_alone() -> None:
    columns = np.random.default_rng(0).normal(size=(17, 3))
    found = [astuple(one) for one in bootstrap_means(columns)]
    alone = [astuple(bootstrap(column, mean)) for column in columns.T]
    assert np.allclose(found, alone, rtol=0, atol=1e-12)


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, trials = np.random.default_rng(0), 300
    covered = 0
    for trial in range(trials):
        interval = bootstrap(rng.normal(loc=2.0, size=60), mean, seed=trial, draws=200)
        covered += interval.low <= 2.0 <= interval.high
    # The percentile interval of 60 values is a little narrow, and 300 trials have a standard error
    # of 1.3 %: 95 % less four of them, and no more than 99 %.
    assert 0.90 <= covered / trials <= 0.99


def test_the_bootstrap_of_a_mean_is_about_1_96_standard_errors_to_either_side() -> None:
    values = np.random.default_rng(0).normal(size=400)
    interval = bootstrap(values, mean, draws=4000)
    assert interval.value == mean(values)
    error = Z95 * values.std() / sqrt(len(values))
    # The quantiles of 4000 draws have a standard error of about 4 % of the distance.
    assert interval.low == pytest.approx(interval.value - error, abs=0.15 * error)
    assert interval.high == pytest.approx(interval.value + error, abs=0.15 * error)


def test_equal_examples_leave_no_doubt() -> None:
    assert bootstrap([3.0] * 5, mean) == Interval(3.0, 3.0, 3.0)


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one example"):
        bootstrap([], mean)


def test_whole_examples_are_drawn() -> None:
    """Rows of several numbers stay together."""
    pairs = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    interval = bootstrap(pairs, lambda rows: float((rows[:, 1] / rows[:, 0]).mean()))
    assert interval == Interval(10.0, 10.0, 10.0)


def test_an_interval_prints_for_people() -> None:
    interval = Interval(0.25, 0.1, 0.5)
    assert str(interval) == "0.250 [0.100, 0.500]"
    assert interval.percent() == "25.0% [10.0%, 50.0%]"
