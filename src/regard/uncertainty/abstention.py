"""Abstention with a guarantee: the error rate among given answers is at most a stated share.

Learn then Test (Angelopoulos et al., 2021) with fixed-sequence testing: thresholds are tested from
strict to loose on calibration questions that were not used to fit them or the confidence.
"""

from dataclasses import dataclass
from math import ceil, log1p

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

THRESHOLDS = 100
"""Number of thresholds in the sequence: quantiles of the confidence in the fitting part."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """Probability that an answer is right, by logistic regression on its signals."""

    center: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def __call__(self, signals: Float[np.ndarray, "n signals"]) -> Float[np.ndarray, " n"]:
        """Return the probability that each answer is right.

        Raises:
            ValueError: the number of signals differs from that of the fit.
        """
        from scipy.special import expit

        if signals.ndim != 2 or signals.shape[1] != len(self.weights):
            raise ValueError(f"signals of shape {signals.shape}, not (n, {len(self.weights)})")
        standard = (signals - np.asarray(self.center)) / np.asarray(self.scale)
        probability: Float[np.ndarray, " n"] = expit(
            standard @ np.asarray(self.weights) + self.bias
        )
        return probability


def fit_combination(
    signals: Float[np.ndarray, "n signals"], correct: Bool[np.ndarray, " n"]
) -> Combination:
    """Fit logistic regression on standardized signals, with penalty ‖w‖² / 2 on the summed loss.

    The penalty keeps the weights finite if the signals separate right from wrong perfectly.

    Raises:
        ValueError: a signal is not finite, or there is not one row of signals for each answer.
    """
    from regard.logistic import fit_labels

    _require_rows(signals, correct)
    center, deviation = signals.mean(0), signals.std(0)
    # The mean of equal signals is rounded, so their deviation may be some 1e-16.
    scale = np.where(np.ptp(signals, axis=0) > 0, deviation, 1.0)
    design = np.column_stack([(signals - center) / scale, np.ones(len(signals))])
    found = fit_labels(design, correct)
    return Combination(
        center=tuple(center.tolist()),
        scale=tuple(scale.tolist()),
        weights=tuple(found[:-1].tolist()),
        bias=float(found[-1]),
    )


def _require_rows(signals: Float[np.ndarray, "n signals"], correct: Bool[np.ndarray, " n"]) -> None:
    if signals.ndim != 2 or len(signals) != len(correct) or not len(correct):
        raise ValueError(f"signals of shape {signals.shape} for {len(correct)} answers")
    if not np.isfinite(signals).all():
        raise ValueError("a signal is not finite")


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The least confidence of answers that are given, and the test that supports it.

    With probability of at least `level` over the calibration questions, the share of wrong answers
    among those given is at most `max_error`, for questions from the same distribution.
    """

    max_error: float
    level: float
    threshold: float | None
    """None if no threshold passed: the run abstains from all questions."""
    questions: int
    """Number of calibration questions in the test."""
    answered: int
    wrong: int

    @property
    def coverage(self) -> float:
        """Share of the calibration questions that are answered."""
        return self.answered / self.questions

    @property
    def smallest_sample(self) -> int:
        """Number of answers that suffice for a threshold if all are right."""
        return ceil(log1p(-self.level) / log1p(-self.max_error))

    def answers(self, confidence: ArrayLike) -> Bool[np.ndarray, " n"]:
        """Return which questions are answered."""
        scores = np.asarray(confidence, dtype=float)
        if self.threshold is None:
            return np.zeros(scores.shape, dtype=bool)
        return scores >= self.threshold


def threshold_sequence(
    confidence: Float[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], *, max_error: float
) -> list[float]:
    """Return thresholds from strict to loose, starting at the one most likely to pass the test.

    Confidence and correctness are those of the questions to which the combination is fitted. The
    test has twice as many, so the first threshold has the smallest p-value at twice the counts.
    """
    thresholds = np.unique(np.quantile(confidence, np.linspace(0, 1, THRESHOLDS)))[::-1]
    expected = [2 * count for count in _counts(confidence, correct, thresholds)]
    start = int(np.argmin(p_values(*expected, max_error=max_error)))
    return [float(threshold) for threshold in thresholds[start:]]


def fixed_sequence_test(
    confidence: Float[np.ndarray, " n"],
    correct: Bool[np.ndarray, " n"],
    thresholds: list[float],
    *,
    max_error: float,
    level: float,
) -> Guarantee:
    """Test thresholds in order until the first that fails, and return the last that passed.

    A threshold with k wrong answers among m given ones passes if
    P(Bin(m, max_error) ≤ k) ≤ 1 − level. The order is fixed before the test, so no correction for
    multiple testing is needed (Bauer, 1991).
    """
    answered, wrong = _counts(confidence, correct, np.asarray(thresholds))
    failed = p_values(answered, wrong, max_error=max_error) > 1 - level
    passed = int(np.argmax(failed)) if failed.any() else len(thresholds)
    return Guarantee(
        max_error=max_error,
        level=level,
        threshold=thresholds[passed - 1] if passed else None,
        questions=len(correct),
        answered=int(answered[passed - 1]) if passed else 0,
        wrong=int(wrong[passed - 1]) if passed else 0,
    )


def calibrate(
    signals: Float[np.ndarray, "n signals"],
    correct: Bool[np.ndarray, " n"],
    *,
    max_error: float,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Combination, Guarantee]:
    """Fit confidence and thresholds on a third of the questions, and test them on the rest.

    Raises:
        ValueError: there are fewer than three questions, an error rate or level is not in (0, 1),
            a signal is not finite, or there is not one row of signals for each answer.
    """
    _require_rows(signals, correct)
    if len(correct) < 3:
        raise ValueError(f"calibration needs at least 3 questions, not {len(correct)}")
    for name, value in (("max_error", max_error), ("level", level)):
        if not 0 < value < 1:
            raise ValueError(f"{name} {value} is not between 0 and 1")
    fitted, tested = split_thirds(len(correct), seed)
    combination = fit_combination(signals[fitted], correct[fitted])
    thresholds = threshold_sequence(
        combination(signals[fitted]), correct[fitted], max_error=max_error
    )
    return combination, fixed_sequence_test(
        combination(signals[tested]),
        correct[tested],
        thresholds,
        max_error=max_error,
        level=level,
    )


def split_thirds(n: int, seed: int) -> tuple[Int[np.ndarray, " fitted"], Int[np.ndarray, " rest"]]:
    """Return the questions that fit confidence and thresholds, a random third, and the others."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 3], order[n // 3 :]


def p_values(
    answered: Float[np.ndarray, " t"], wrong: Float[np.ndarray, " t"], *, max_error: float
) -> Float[np.ndarray, " t"]:
    """Return P(Bin(answered, max_error) ≤ wrong); 1 where nothing is answered."""
    from scipy.stats import binom

    return np.where(answered > 0, np.asarray(binom.cdf(wrong, answered, max_error)), 1.0)


def _counts(
    confidence: Float[np.ndarray, " n"],
    correct: Bool[np.ndarray, " n"],
    thresholds: Float[np.ndarray, " t"],
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Count the answers at or above each threshold, and the wrong ones among them."""
    given = confidence >= thresholds[:, None]
    return given.sum(1), (given & ~correct).sum(1)
