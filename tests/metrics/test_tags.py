"""Scores of tags against those of single words, and against their definitions."""

from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.metrics import macro_f1, tag_accuracy, tag_macro_f1

tags = st.sampled_from(["person", "place", "other"])
pairs = st.lists(st.lists(st.tuples(tags, tags), min_size=1, max_size=6), min_size=1, max_size=6)
Texts = list[list[str]]
checked = settings(deadline=None, derandomize=True, max_examples=15)
"""Few examples: each is resampled a thousand times."""


def sides(texts: list[list[tuple[str, str]]]) -> tuple[Texts, Texts]:
    return [[a for a, _ in text] for text in texts], [[b for _, b in text] for text in texts]


@checked
@given(pairs)
def test_scores_are_those_of_all_words_together(texts: list[list[tuple[str, str]]]) -> None:
    predicted, true = sides(texts)
    words = [pair for text in texts for pair in text]
    hits = sum(a == b for a, b in words)
    assert tag_accuracy(predicted, true).value == hits / len(words)
    expected = macro_f1([a for a, _ in words], [b for _, b in words]).value
    assert tag_macro_f1(predicted, true).value == pytest.approx(expected, rel=1e-14)


@checked
@given(pairs)
def test_words_of_a_text_are_drawn_together(texts: list[list[tuple[str, str]]]) -> None:
    """Of one text alone, each resample is the same."""
    predicted, true = sides(texts[:1])
    for score in (tag_accuracy(predicted, true), tag_macro_f1(predicted, true)):
        assert score.low == score.value == score.high


@checked
@given(st.lists(tags, min_size=1, max_size=5), st.lists(tags, max_size=8))
def test_a_word_without_a_tag_is_wrong_and_a_tag_without_a_word_counts_for_nothing(
    true: list[str], said: list[str]
) -> None:
    filled = [a for a, b in zip_longest(said, true, fillvalue="none") if b != "none"]
    found = tag_accuracy([said], [true]).value
    assert found == sum(a == b for a, b in zip(filled, true, strict=True)) / len(true)
