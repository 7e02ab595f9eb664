"""Macro F1 and confusion, against their definitions, counted class by class."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.metrics import Interval, confusion, macro_f1

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


@checked
@given(answers, st.data())
def test_the_order_of_examples_does_not_matter(answers: Answers, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(answers))
    assert macro_f1(*sides(shuffled)).value == macro_f1(*sides(answers)).value


@checked
@given(st.lists(labels, min_size=1))
def test_what_is_all_right_scores_1_without_a_doubt(true: list[str]) -> None:
    assert macro_f1(true, true) == Interval(1.0, 1.0, 1.0)


def test_a_class_that_is_never_right_counts_as_0() -> None:
    """Never predicted, or never true."""
    assert macro_f1(["a", "a"], ["a", "b"]).value == pytest.approx((2 / 3 + 0) / 2)
    assert macro_f1(["a", "b"], ["a", "a"]).value == pytest.approx((2 / 3 + 0) / 2)


def test_macro_f1_repeats_itself_and_listens_to_its_seed() -> None:
    predicted, true = [0, 1, 1, 2, 2, 0, 1], [0, 1, 2, 2, 1, 0, 2]
    assert macro_f1(predicted, true, seed=1) == macro_f1(predicted, true, seed=1)
    assert macro_f1(predicted, true, seed=1) != macro_f1(predicted, true, seed=2)


# Confusion


@checked
@given(answers)
def test_confusion_counts_every_pair_of_classes(answers: Answers) -> None:
    names, counts = confusion(*sides(answers))
    assert names == sorted({label for pair in answers for label in pair})
    assert counts.tolist() == [
        [answers.count((predicted, true)) for predicted in names] for true in names
    ]


@checked
@given(answers)
def test_swapped_sides_transpose_the_counts(answers: Answers) -> None:
    predicted, true = sides(answers)
    assert confusion(true, predicted)[1].tolist() == confusion(predicted, true)[1].T.tolist()


def test_nothing_is_confused_with_nothing() -> None:
    no_labels: list[str] = []
    names, counts = confusion(no_labels, no_labels)
    assert (names, counts.shape) == ([], (0, 0))


# What is refused


def test_each_example_needs_one_prediction() -> None:
    for measure in (macro_f1, confusion):
        with pytest.raises(ValueError, match="argument 2 is longer"):
            measure(["a"], ["a", "b"])


def test_macro_f1_of_nothing_is_refused() -> None:
    no_labels: list[str] = []
    with pytest.raises(ValueError, match="at least one example"):
        macro_f1(no_labels, no_labels)
