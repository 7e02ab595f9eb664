"""Metrics of selective prediction, by their definitions and published formulas."""

from collections.abc import Callable
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from regard.metrics import auroc
from regard.uncertainty.metrics import (
    Metric,
    augrc,
    aurc,
    average_precision,
    brier,
    calibration_error,
    paired_difference,
    prr,
    risk_at_coverage,
)

# Few levels of confidence, so that ties are frequent.
ANSWERS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40)
MIXED = ANSWERS.filter(lambda answers: len({right for _, right in answers}) == 2)
Answers = list[tuple[int, bool]]


def split(answers: Answers) -> tuple[list[float], list[bool]]:
    return [score / 5 for score, _ in answers], [right for _, right in answers]


@given(MIXED)
def test_augrc_follows_from_auroc_and_accuracy(answers: Answers) -> None:
    confidence, correct = split(answers)
    area = auroc(
        [s for s, right in zip(confidence, correct, strict=True) if right],
        [s for s, right in zip(confidence, correct, strict=True) if not right],
    )
    a = np.mean(correct)
    expected = (1 - area) * a * (1 - a) + (1 - a) ** 2 / 2
    assert augrc(confidence, correct) == pytest.approx(expected, abs=1e-12)


@given(MIXED)
def test_average_precision_sums_over_distinct_thresholds(answers: Answers) -> None:
    confidence, correct = map(np.array, split(answers))
    expected, recall = 0.0, 0.0
    for threshold in sorted(set(confidence.tolist()), reverse=True):
        given_answers = confidence >= threshold
        reached = correct[given_answers].sum() / correct.sum()
        expected += (reached - recall) * correct[given_answers].mean()
        recall = reached
    assert average_precision(confidence, correct) == pytest.approx(expected, rel=1e-12)


@given(MIXED)
def test_aurc_is_the_mean_over_orders_of_ties(answers: Answers) -> None:
    """By the definition, over all orders of at most six answers that respect confidence."""
    few = answers[:6]
    confidence, correct = split(few)
    areas = [
        np.mean([np.mean([not correct[i] for i in order[:k]]) for k in range(1, len(few) + 1)])
        for order in permutations(range(len(few)))
        if all(confidence[a] >= confidence[b] for a, b in pairwise(order))
    ]
    assert aurc(confidence, correct) == pytest.approx(float(np.mean(areas)), rel=1e-12)


def test_prr_of_the_best_worst_and_random_order() -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(200) < 0.6
    assert prr(correct, correct) == pytest.approx(1)
    assert prr(~correct, correct) < 0
    assert prr(np.zeros(200), correct) == pytest.approx(0, abs=1e-12)
    drawn = [prr(rng.permutation(200), correct) for _ in range(500)]
    assert np.mean(drawn) == pytest.approx(0, abs=4 * np.std(drawn) / 500**0.5)


@given(MIXED)
def test_prr_is_the_share_of_the_rejection_area(answers: Answers) -> None:
    """By curves of the mean quality that remains, as lm-polygraph defines them, without ties."""
    correct = np.array([right for _, right in answers])
    uncertainty = np.random.default_rng(len(answers)).permutation(len(answers))

    def area(order: np.ndarray) -> float:
        return float((np.cumsum(correct[order]) / np.arange(1, len(order) + 1)).mean())

    reached, best = area(np.argsort(uncertainty)), area(np.argsort(~correct, kind="stable"))
    random = correct.mean()
    expected = (reached - random) / (best - random)
    assert prr(-uncertainty, correct) == pytest.approx(expected, abs=1e-9)


@given(ANSWERS)
def test_brier_is_the_mean_squared_error(answers: Answers) -> None:
    probability, correct = split(answers)
    expected = sum((p - c) ** 2 for p, c in zip(probability, correct, strict=True)) / len(answers)
    assert brier(probability, correct) == pytest.approx(expected, abs=1e-12)


def test_calibration_error_by_hand() -> None:
    """Three answers at 0.9 of which two are right, one wrong answer at 1, one right at 0."""
    found = calibration_error([0.85, 0.85, 0.85, 1, 0], [True, True, False, False, True], bins=5)
    assert found == pytest.approx((abs(3 * 0.85 + 1 - 2) + 1) / 5)


def test_risk_at_coverage_takes_the_most_confident() -> None:
    confidence, correct = [0.9, 0.8, 0.7, 0.6], [True, False, True, False]
    assert risk_at_coverage(confidence, correct, 0.25) == 0
    assert risk_at_coverage(confidence, correct, 0.5) == 0.5
    assert risk_at_coverage(confidence, correct, 1) == 0.5
    with pytest.raises(ValueError, match="not in"):
        risk_at_coverage(confidence, correct, 0)


def test_a_paired_difference_is_narrower_than_its_parts() -> None:
    """Two signals with nearly the same order differ surely by less than each varies."""
    rng = np.random.default_rng(0)
    skill = rng.normal(size=300)
    correct = rng.random(300) < 1 / (1 + np.exp(-2 * skill))
    better, worse = skill + rng.normal(size=300) / 4, skill + rng.normal(size=300)
    found = paired_difference(better, worse, correct, augrc)
    assert found.low <= found.value <= found.high < 0
    nothing = paired_difference(better, better, correct, aurc)
    assert (nothing.low, nothing.value, nothing.high) == (0, 0, 0)


@pytest.mark.parametrize("metric", [average_precision, aurc, augrc, prr, brier, calibration_error])
def test_bad_input_is_refused(metric: Callable[[ArrayLike, ArrayLike], float]) -> None:
    for confidence, correct in (([], []), ([0.5], [True, False]), ([np.nan, 1], [True, False])):
        with pytest.raises(ValueError, match="confidence"):
            metric(confidence, correct)


def test_metrics_say_what_they_lack() -> None:
    with pytest.raises(ValueError, match="a right answer"):
        average_precision([0.5], [False])
    with pytest.raises(ValueError, match="both"):
        prr([0.5, 0.1], [True, True])
    for metric in (brier, calibration_error):
        with pytest.raises(ValueError, match="probability"):
            metric([1.5], [True])


@pytest.mark.parametrize(("metric", "right"), [(prr, 97), (average_precision, 3)])
def test_differences_with_few_answers_of_a_kind(metric: Metric, right: int) -> None:
    rng = np.random.default_rng(0)
    found = paired_difference(rng.random(100), rng.random(100), np.arange(100) < right, metric)
    assert found.low <= found.value <= found.high


def test_a_coverage_is_rounded_up_but_for_rounding() -> None:
    assert risk_at_coverage(np.arange(100, 0, -1), np.arange(100) != 7, 0.07) == 0
    assert risk_at_coverage([2, 1], [True, False], 1e-10) == 0
