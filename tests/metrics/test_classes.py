"""Macro F1 and confusion, against their definitions, counted class by class."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.metrics import confusion, macro_f1

EPS = float(np.finfo(float).eps)
checked = settings(deadline=None, derandomize=True, max_examples=50)
Answers = list[tuple[str, str]]
labels = st.sampled_from(["Leeds", "London", "Rill", "Łódź"])
answers = st.lists(st.tuples(labels, labels), min_size=1, max_size=12)


def sides(answers: Answers) -> tuple[list[str], list[str]]:
    return [predicted for predicted, _ in answers], [true for _, true in answers]


def f1(answers: Answers, label: str) -> float:
    """The harmonic mean of precision and recall, where there are both."""
    right = answers.count((label, label))
    predicted, true = (side.count(label) for side in sides(answers))
    if not right:
        return 0.0
    precision, recall = right / predicted, right / true
    return 2 * precision * recall / (precision + recall)


# Macro F1


@checked
@given(answers)
def test_macro_f1_is_the_mean_over_the_classes_that_occur(answers: Answers) -> None:
    occurring = {label for pair in answers for label in pair}
    score = macro_f1(*sides(answers))
    # A harmonic mean, and a mean of four.
    expected = fmean(f1(answers, label) for label in occurring)
    assert score.value == pytest.approx(expected, rel=8 * EPS, abs=0)
    assert 0 <= score.low <= score.high <= 1


# Confusion


@checked
@example([])
@given(answers)
def test_confusion_counts_every_pair_of_classes(answers: Answers) -> None:
    names, counts = confusion(*sides(answers))
    assert names == sorted({label for pair in answers for label in pair})
    assert counts.tolist() == [
        [answers.count((predicted, true)) for predicted in names] for true in names
    ]
