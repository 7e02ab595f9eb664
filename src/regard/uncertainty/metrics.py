"""Metrics of selective prediction: how well confidence separates right from wrong answers.

Throughout, `confidence` is a score for each answer, higher for more trustworthy ones, and `correct`
is True for right answers. Answers of equal confidence count as one block, so metrics don't depend
on their order. AUROC and the risk–coverage curve are in `regard.metrics`.
"""

from collections.abc import Callable
from math import ceil

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from regard.metrics import Interval, bootstrap, risk_coverage

Metric = Callable[[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]], float]
"""A function of confidence and correctness."""


def average_precision(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return average precision: precision at each distinct threshold, weighted by added recall.

    Raises:
        ValueError: no answer is right, or there is not one confidence for each answer.
    """
    scores, right = _checked(confidence, correct)
    if not right.any():
        raise ValueError("average precision needs a right answer")
    answered, hits = _blocks(scores, right)
    return float((hits / answered) @ np.diff(hits, prepend=0) / hits[-1])


def aurc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the mean risk over all coverages 1/n … 1 (Geifman et al., 2019).

    The risk is the share of wrong answers among those given.

    Raises:
        ValueError: there are no answers, or not one confidence for each.
    """
    scores, right = _checked(confidence, correct)
    return float(risk_coverage(scores.tolist(), right.tolist())[1].mean())


def augrc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the area under the generalized risk–coverage curve (Traub et al., 2024).

    The generalized risk is the share of all answers that are given and wrong. If some answers are
    right and some wrong, the area is (1 − AUROC) · a (1 − a) + (1 − a)² / 2 for accuracy a (eq. 6).

    Raises:
        ValueError: there are no answers, or not one confidence for each.
    """
    scores, right = _checked(confidence, correct)
    answered, hits = (np.concatenate([[0], counts]) for counts in _blocks(scores, right))
    return float(np.trapezoid(answered - hits, answered) / len(scores) ** 2)


def prr(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return the prediction rejection ratio: 1 for the best order, 0 expected for a random one.

    It is (AURC of random order − AURC) / (AURC of random order − AURC of the best order) (Malinin &
    Gales, 2021; Vashurin et al., 2025). lm-polygraph samples random orders; this is their
    expectation.

    Raises:
        ValueError: all answers are right, or all wrong, or there is not one confidence for each.
    """
    scores, right = _checked(confidence, correct)
    if right.all() or not right.any():
        raise ValueError("PRR needs both right and wrong answers")
    random, best = 1 - right.mean(), aurc(right, right)
    return float((random - aurc(scores, right)) / (random - best))


def brier(probability: ArrayLike, correct: ArrayLike) -> float:
    """Return the mean squared difference of probability and outcome (Brier, 1950).

    Raises:
        ValueError: a value is not a probability, or there is not one for each answer.
    """
    scores, right = _checked(probability, correct)
    _require_probabilities(scores)
    return float(((scores - right) ** 2).mean())


def calibration_error(probability: ArrayLike, correct: ArrayLike, *, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal width (Naeini et al., 2015).

    Raises:
        ValueError: a value is not a probability, or there is not one for each answer.
    """
    scores, right = _checked(probability, correct)
    _require_probabilities(scores)
    place = np.minimum((scores * bins).astype(int), bins - 1)
    gaps = np.bincount(place, scores - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(scores))


def risk_at_coverage(confidence: ArrayLike, correct: ArrayLike, coverage: float) -> float:
    """Return the share of wrong answers among the most confident ⌈coverage · n⌉.

    Raises:
        ValueError: the coverage is not in (0, 1], or there is not one confidence for each answer.
    """
    scores, right = _checked(confidence, correct)
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage {coverage} is not in (0, 1]")
    n = max(1, ceil(round(coverage * len(right), 9)))  # 0.07 · 100 is a little more than 7
    return float(risk_coverage(scores.tolist(), right.tolist())[1][n - 1])


def paired_difference(
    first: ArrayLike, second: ArrayLike, correct: ArrayLike, metric: Metric, *, seed: int = 0
) -> Interval:
    """Return metric(first) − metric(second) on the same answers, with its bootstrap interval.

    If some answers are right and some wrong, so are those of each resample: metrics need both.

    Raises:
        ValueError: there is not one confidence of each kind for each answer.
    """
    scores, right = _checked(first, correct)
    others, _ = _checked(second, correct)
    rows = np.column_stack([scores, others, right])

    def difference(drawn: Float[np.ndarray, "n 3"]) -> float:
        outcome = drawn[:, 2].astype(bool)
        return metric(drawn[:, 0], outcome) - metric(drawn[:, 1], outcome)

    def has_both(drawn: Float[np.ndarray, "n 3"]) -> bool:
        return bool(np.ptp(drawn[:, 2]) == np.ptp(rows[:, 2]))

    return bootstrap(rows, difference, seed=seed, defined=has_both)


def _checked(
    confidence: ArrayLike, correct: ArrayLike
) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    scores, right = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=bool)
    if scores.ndim != 1 or scores.shape != right.shape or not len(scores):
        raise ValueError(f"{scores.shape} values of confidence for {right.shape} answers")
    if not np.isfinite(scores).all():
        raise ValueError("a confidence is not finite")
    return scores, right


def _require_probabilities(scores: Float[np.ndarray, " n"]) -> None:
    if (scores < 0).any() or (scores > 1).any():
        raise ValueError("a confidence is not a probability from 0 to 1")


def _blocks(
    scores: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " blocks"], Float[np.ndarray, " blocks"]]:
    """Count answers given, and right ones among them, at each distinct threshold from the top."""
    level = np.unique(-scores, return_inverse=True)[1]
    answered = np.cumsum(np.bincount(level)).astype(float)
    return answered, np.cumsum(np.bincount(level, right))
