"""Scores of texts whose words have a tag each; the words of one text are resampled together."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from regard.metrics.intervals import Interval, bootstrap

Tags = Sequence[Sequence[str]]
"""The tags of each text's words."""


def tag_accuracy(predicted: Tags, true: Tags, *, seed: int = 0) -> Interval:
    """The share of words whose tag is right; a word without a predicted one is wrong.

    Raises:
        ValueError: there are no texts, or not one prediction for each.
    """
    return bootstrap(_counts(predicted, true), _accuracy, seed=seed)


def tag_macro_f1(predicted: Tags, true: Tags, *, seed: int = 0) -> Interval:
    """The mean F1 of all tags that are predicted or true; 0 for one that is never right.

    Raises:
        ValueError: there are no texts, or not one prediction for each.
    """
    return bootstrap(_counts(predicted, true), _macro_f1, seed=seed)


def _counts(predicted: Tags, true: Tags) -> Int[np.ndarray, "texts tags 3"]:
    """Counts of each tag per text: right, predicted and true."""
    kinds = sorted({tag for text in (*predicted, *true) for tag in text})
    place = {tag: i for i, tag in enumerate(kinds)}
    counts = np.zeros((len(true), len(kinds), 3), dtype=int)
    for of_text, said, right in zip(counts, predicted, true, strict=True):
        for a, b in zip(said, right, strict=False):
            of_text[place[b], 0] += a == b
        for column, tags in ((1, said), (2, right)):
            np.add.at(of_text[:, column], [place[tag] for tag in tags], 1)
    return counts


def _accuracy(counts: Int[np.ndarray, "texts tags 3"]) -> float:
    right, _, true = counts.sum((0, 1))
    return float(right / true)


def _macro_f1(counts: Int[np.ndarray, "texts tags 3"]) -> float:
    """F1 = 2 · right / (predicted + true); a resample may lack tags."""
    right, said, true = counts.sum(0).T
    seen = said + true > 0
    return float((2 * right[seen] / (said + true)[seen]).mean())
