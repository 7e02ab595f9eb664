"""The right clause counts, and nothing simpler than reading the sentence tells which."""

import re
from collections import Counter, defaultdict

import pytest

from regard.tasks.bag_of_words import bag
from regard.tasks.classification import ClassificationConfig
from regard.tasks.split import Split

PRAISE = {"good", "great", "lovely", "excellent", "pleasant", "perfect", "charming"}
PRAISE |= {"like", "love", "enjoy", "admire", "liked", "loved", "enjoyed", "admired"}
BLAME = {"bad", "awful", "poor", "terrible", "dull", "dreadful", "horrible"}
BLAME |= {"hate", "dislike", "detest", "resent", "hated", "disliked", "detested", "resented"}


@pytest.fixture(scope="module")
def made() -> Split:
    return ClassificationConfig(training=2000, test=500).make(0)


def clauses(text: str) -> tuple[str, str, bool]:
    """Both clauses, and whether the last one counts."""
    if text.startswith("although "):
        first, last = text.removeprefix("although ").split(", ")
        return first, last, True
    if " but " in text:
        first, last = text.split(" but ")
        return first, last, True
    first, last = re.split(" although |, even though ", text)
    return first, last, False


def feeling(clause: str) -> str:
    words = set(clause.split())
    assert len(words & (PRAISE | BLAME)) == 1, clause
    return "positive" if bool(words & PRAISE) != ("not" in words) else "negative"


def test_the_label_is_that_of_the_clause_that_counts(made: Split) -> None:
    for question in (*made.training, *made.test):
        first, last, last_counts = clauses(question.text)
        assert question.answer == feeling(last if last_counts else first)
        assert feeling(first) != feeling(last)


def test_each_bag_of_words_has_both_labels_equally_often(made: Split) -> None:
    """So any classifier of bags, such as naive Bayes, is right on half of them."""
    for part in (made.training, made.test):
        labels = defaultdict[frozenset[tuple[str, int]], Counter[str]](Counter)
        for question in part:
            labels[frozenset(bag(question.text).items())][str(question.answer)] += 1
        assert all(counts["positive"] == counts["negative"] for counts in labels.values())


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
def test_neither_the_first_clause_nor_the_last_tells(made: Split, place: int) -> None:
    right = [q.answer == feeling(clauses(q.text)[:2][place]) for q in made.test]
    # Both sentences of a pair are right, or both wrong: 250 coins, 3.3 standard deviations.
    assert sum(right) / 500 == pytest.approx(0.5, abs=0.105)
