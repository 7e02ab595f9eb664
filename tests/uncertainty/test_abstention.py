"""Abstention: the binomial test by its definition, and the guarantee by simulation."""

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float

from regard.uncertainty.abstention import (
    Guarantee,
    calibrate,
    fit_combination,
    fixed_sequence_test,
    p_values,
    threshold_sequence,
)

DRAWS = 300


def pool(seed: int, n: int = 2000) -> tuple[Float[np.ndarray, "n signals"], Bool[np.ndarray, " n"]]:
    """Answers of which some 70 % are right, with two informative signals and one of noise."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=n)
    correct = rng.random(n) < 1 / (1 + np.exp(-(2.5 * skill + 1.2)))
    return np.column_stack([skill, skill + rng.normal(size=n), rng.normal(size=n)]), correct


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0.01, 0.9))
def test_p_value_is_the_binomial_tail(answered: int, wrong: int, max_error: float) -> None:
    tail = sum(
        comb(answered, k) * max_error**k * (1 - max_error) ** (answered - k)
        for k in range(min(wrong, answered) + 1)
    )
    found = p_values(np.array([answered, 0]), np.array([wrong, 0]), max_error=max_error)
    assert found == pytest.approx([tail, 1], rel=1e-9)  # nothing answered proves nothing


@pytest.mark.parametrize("max_error", [0.1, 0.2, 0.3])
def test_the_guarantee_holds(max_error: float) -> None:
    """Broken for at most 5 % of the calibration sets and three standard errors."""
    signals, correct = pool(0)
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(DRAWS):
        drawn = rng.integers(0, len(correct), 600)
        combination, guarantee = calibrate(signals[drawn], correct[drawn], max_error=max_error)
        given_answers = guarantee.answers(combination(signals))
        if given_answers.any():
            broken += (~correct[given_answers]).mean() > max_error
    assert broken / DRAWS <= 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5


def test_it_is_not_bought_by_silence() -> None:
    """With 1 000 questions, the coverage is near that of the best threshold in hindsight."""
    signals, correct = pool(2, n=20_000)
    shares = []
    for seed in range(30):
        drawn = np.random.default_rng(seed).integers(0, len(correct), 1000)
        combination, guarantee = calibrate(signals[drawn], correct[drawn], max_error=0.2)
        confidence = combination(signals)
        order = np.argsort(-confidence)
        risk = np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)
        best = (np.flatnonzero(risk <= 0.2).max() + 1) / len(order)
        shares.append(guarantee.answers(confidence).mean() / best)
    assert np.mean(shares) >= 0.8


def test_without_any_skill_it_abstains() -> None:
    """Answers that are all wrong pass no threshold, and the smallest sample that could is told."""
    signals = np.random.default_rng(0).normal(size=(300, 2))
    _, guarantee = calibrate(signals, np.zeros(300, dtype=bool), max_error=0.05)
    assert guarantee.threshold is None
    assert guarantee.coverage == 0
    assert not guarantee.answers(np.ones(5)).any()
    assert guarantee.smallest_sample == 59  # ln 0.05 / ln 0.95 = 58.4


@pytest.mark.parametrize("correct", [True, False])
def test_smallest_sample_is_the_least_that_passes(correct: bool) -> None:
    """One error fewer than it, or one answer fewer, doesn't pass."""
    smallest = Guarantee(
        max_error=0.2, level=0.95, threshold=None, questions=1, answered=0, wrong=0
    ).smallest_sample
    assert 0.8**smallest <= 0.05 < 0.8 ** (smallest - 1)
    n = smallest if correct else smallest - 1
    found = fixed_sequence_test(
        np.ones(n), np.ones(n, dtype=bool), [0.5], max_error=0.2, level=0.95
    )
    assert (found.threshold is not None) is correct


def test_the_sequence_stops_at_the_first_failure() -> None:
    """The loosest threshold would pass again, but one before it fails."""
    confidence = np.repeat([3.0, 2.0, 1.0], [50, 30, 2000])
    correct = np.repeat([True, False, True], [50, 30, 2000])
    test = {"max_error": 0.2, "level": 0.95}
    assert fixed_sequence_test(confidence, correct, [3, 2, 1], **test).threshold == 3
    assert fixed_sequence_test(confidence, correct, [1], **test).threshold == 1
    assert fixed_sequence_test(confidence, correct, [2, 1], **test).threshold is None


def test_thresholds_become_looser_and_reach_all() -> None:
    signals, correct = pool(3, n=300)
    thresholds = threshold_sequence(signals[:, 0], correct, max_error=0.2)
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[-1] == signals[:, 0].min()


def test_the_combination_is_the_minimum_of_its_loss() -> None:
    """The gradient, by differences of the loss in float64, vanishes."""
    signals, correct = pool(4, n=400)
    combination = fit_combination(signals, correct)
    standard = (signals - signals.mean(0)) / signals.std(0)
    target = (correct * 400 + 1) / 402

    def loss(parameters: Float[np.ndarray, " p"]) -> float:
        logits = standard @ parameters[:-1] + parameters[-1]
        fit = np.logaddexp(0, logits) - target * logits
        return float(fit.sum() + (parameters[:-1] ** 2).sum() / 2)

    found = np.array([*combination.weights, combination.bias])
    step = 1e-4
    slopes = [(loss(found + step * e) - loss(found - step * e)) / (2 * step) for e in np.eye(4)]
    assert np.abs(slopes).max() < 0.05  # of 400 answers; at zero weights it is some 100
    assert combination.weights[0] > max(abs(weight) for weight in combination.weights[1:])


def test_separable_and_constant_signals_stay_finite() -> None:
    correct = np.arange(40) >= 20
    signals = np.column_stack([np.arange(40.0), np.ones(40)])
    combination = fit_combination(signals, correct)
    assert np.isfinite([*combination.weights, combination.bias]).all()
    assert ((combination(signals) > 0.5) == correct).all()


RIGHT = np.ones(9, dtype=bool)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no error": (
        lambda: calibrate(np.zeros((9, 1)), RIGHT, max_error=0),
        "max_error 0 is not between 0 and 1",
    ),
    "errors alone": (
        lambda: calibrate(np.zeros((9, 1)), RIGHT, max_error=1),
        "max_error 1 is not between 0 and 1",
    ),
    "certainty": (
        lambda: calibrate(np.zeros((9, 1)), RIGHT, max_error=0.2, level=1),
        "level 1 is not between 0 and 1",
    ),
    "a signal that is NaN": (
        lambda: calibrate(np.full((9, 1), np.nan), RIGHT, max_error=0.2),
        "finite",
    ),
    "two questions": (
        lambda: calibrate(np.zeros((2, 1)), RIGHT[:2], max_error=0.2),
        "at least 3",
    ),
    "fewer signals than answers": (
        lambda: calibrate(np.zeros((2, 1)), RIGHT[:3], max_error=0.2),
        "for 3 answers",
    ),
    "a vector of signals": (
        lambda: fit_combination(np.zeros(3), RIGHT[:3]),
        "for 3 answers",
    ),
    "other signals than those of the fit": (
        lambda: fit_combination(*pool(5, n=30))(np.zeros((4, 2))),
        r"not \(n, 3\)",
    ),
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_a_constant_signal_has_no_effect() -> None:
    """The deviation of equal numbers is rounded to 1e-16."""
    skill, one_document = np.linspace(-1, 1, 100), np.log(2)
    fit = fit_combination(np.column_stack([skill, np.full(100, one_document)]), skill > 0)
    found = fit(np.array([[0.5, one_document], [0.5, 0.0], [0.5, np.log(3)]]))
    assert found == pytest.approx([found[0]] * 3)
