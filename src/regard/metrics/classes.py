"""Scores of classes, and confusion between them."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from regard.metrics.intervals import Interval, bootstrap

Label = TypeVar("Label", int, str)


def macro_f1(predicted: Sequence[Label], true: Sequence[Label], *, seed: int = 0) -> Interval:
    """The mean F1 of all classes that are predicted or true; 0 for one that is never right.

    The averaged F1 of Opitz & Burst (2019), not their F1 of averages.

    Raises:
        ValueError: there are no examples, or not one prediction for each.
    """
    return bootstrap(_numbered(predicted, true)[1], _macro_f1, seed=seed)


def confusion(
    predicted: Sequence[Label], true: Sequence[Label]
) -> tuple[list[Label], Int[np.ndarray, "classes classes"]]:
    """Confusion matrix: counts of each true and predicted class.

    Returns:
        The classes in order, and the counts: a row for each true class, a column for each
        predicted.

    Raises:
        ValueError: there isn't one prediction for each example.
    """
    labels, pairs = _numbered(predicted, true)
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (pairs[:, 1], pairs[:, 0]), 1)
    return labels, counts


def _macro_f1(pairs: Int[np.ndarray, "examples 2"]) -> float:
    """F1 = 2 · true positives / (predicted + true); a resample may lack classes."""
    predicted, true = pairs.T
    seen = np.bincount(pairs.ravel())
    right = np.bincount(true[predicted == true], minlength=len(seen))
    return float((2 * right[seen > 0] / seen[seen > 0]).mean())


def _numbered(
    predicted: Sequence[Label], true: Sequence[Label]
) -> tuple[list[Label], Int[np.ndarray, "examples 2"]]:
    """The classes that occur in either, in order, and predicted and true ones as their numbers."""
    labels = sorted(set(predicted) | set(true))
    numbers = {label: number for number, label in enumerate(labels)}
    pairs = [(numbers[p], numbers[t]) for p, t in zip(predicted, true, strict=True)]
    return labels, np.array(pairs, dtype=int).reshape(-1, 2)
