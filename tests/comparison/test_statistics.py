"""Statistics against scipy, the definition of Holm's method, and simulations."""

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from regard.comparison.statistics import compare_with, holm, paired_p, t_interval

VALUES = st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=8)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(VALUES)
def test_the_interval_is_scipys(values: list[float]) -> None:
    found = t_interval(values)
    spread = stats.sem(values)
    if spread == 0:
        assert found.low == found.value == found.high
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=spread)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


def test_one_seed_has_no_interval() -> None:
    found = t_interval([0.5])
    assert found.value == 0.5
    assert isnan(found.low)
    assert isnan(found.high)
    with pytest.raises(ValueError, match="at least one"):
        t_interval([])


def test_intervals_end_where_the_scores_do() -> None:
    values = [0.0, 0.0, 0.95]
    free, found = t_interval(values), t_interval(values, 0.0, 1.0)
    assert free.low < 0 < 1 < free.high
    assert (found.value, found.low, found.high) == (free.value, 0, 1)
    difference = compare_with(dict.fromkeys(range(3), 1.0), {"a": dict(enumerate(values))}, 1.0)
    assert difference["a"].mean.low == -1
    assert difference["a"].mean.high == pytest.approx(free.high - 1)
    assert difference["a"].p == pytest.approx(stats.ttest_1samp(values, 1).pvalue)


@given(VALUES)
def test_the_paired_test_is_scipys(differences: list[float]) -> None:
    if np.std(differences, ddof=1) < 1e-9:
        return
    expected = stats.ttest_rel(differences, np.zeros(len(differences))).pvalue
    assert paired_p(differences) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_equal_differences() -> None:
    assert paired_p([0.0, 0.0]) == 1
    assert paired_p([0.5] * 3) == 0
    assert isnan(paired_p([0.5, 0.5])), "two scores of few examples are often equal"
    assert isnan(paired_p([0.9 - 0.8, 0.8 - 0.7]))
    assert isnan(paired_p([0.5]))


@given(P_VALUES)
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    """The k-th smallest of m is compared with level / (m - k + 1), until one is larger."""
    adjusted = holm(p_values)
    for level in {0.01, 0.05, 0.5, *adjusted} - {1.0}:
        order = sorted(range(len(p_values)), key=lambda i: p_values[i])
        rejected = set()
        for rank, i in enumerate(order):
            if p_values[i] * (len(order) - rank) > level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_an_unknown_p_value_is_not_adjusted_for() -> None:
    assert holm([nan, 0.04])[1] == 0.04


def test_differences_are_over_common_seeds() -> None:
    found = compare_with({0: 0.5, 1: 0.6, 2: 0.7}, {"a": {1: 0.7, 2: 0.9, 3: 0.0}, "b": {7: 1.0}})
    assert found.keys() == {"a"}
    assert found["a"].mean.value == pytest.approx(0.15)
    assert found["a"].seeds == 2


def test_the_rate_of_false_discoveries_and_of_planted_ones() -> None:
    """1 000 sweeps of 4 rows and a baseline, 5 seeds, seeds with an effect of their own.

    Holm's method bounds the rate of any false rejection by 0.05; three standard errors of 1 000
    trials are 0.021. A planted difference of 5 standard deviations is found nearly always.
    """
    rng = np.random.default_rng(0)
    false = found = 0
    for _ in range(1000):
        seeds = rng.normal(size=5)
        rows = {name: seeds + 0.1 * rng.normal(size=5) for name in "0abcd"}
        rows["planted"] = rows["0"] + 0.5 + 0.1 * rng.normal(size=5)
        scores = {name: dict(enumerate(values)) for name, values in rows.items()}
        differences = compare_with(scores.pop("0"), scores)
        false += any(differences[name].distinct for name in "abcd")
        found += differences["planted"].distinct
    assert false / 1000 <= 0.05 + 0.021
    assert found / 1000 >= 0.95
