"""The label is what both texts together say, and neither of them tells it alone."""

import re
from collections import Counter, defaultdict

import msgspec
import pytest

from regard.tasks.bag_of_words import naive_bayes
from regard.tasks.entailment import VALUES, EntailmentConfig
from regard.tasks.examples import Example
from regard.tasks.names import FIRST_NAMES, LAST_NAMES
from regard.tasks.split import Split

N = 510
"""A third of them, 170, is a whole number."""


@pytest.fixture(scope="module")
def made() -> Split:
    return EntailmentConfig(training=1800, test=N).make(0)


def words(text: str | None) -> set[str]:
    return set(re.findall(r"\w+", str(text)))


def person(text: str | None) -> str:
    (found,) = set(re.findall(rf"({'|'.join(FIRST_NAMES)}) ({'|'.join(LAST_NAMES)})", str(text)))
    return " ".join(found)


def facts(text: str | None) -> dict[str, str]:
    """What a text says, read off its words."""
    lower = {word.lower() for word in words(text)}
    return {
        kind: value for kind, values in VALUES.items() for value in values if value.lower() in lower
    }


def right_label(question: Example) -> str:
    told, ((kind, value),) = facts(question.text), facts(question.second).items()
    if person(question.text) != person(question.second) or kind not in told:
        return "unknown"
    return "follows" if told[kind] == value else "contradicts"


def test_the_label_is_what_the_texts_say(made: Split) -> None:
    for question in (*made.training, *made.test):
        assert question.answer == right_label(question)
        assert 1 <= question.text.count(".") <= 3
        assert len(facts(question.text)) == question.text.count(".")


def test_unknown_is_a_missing_fact_or_the_same_of_somebody_else(made: Split) -> None:
    unknown = [q for q in made.training if q.answer == "unknown"]
    others = [q for q in unknown if person(q.text) != person(q.second)]
    assert all(facts(q.second).items() <= facts(q.text).items() for q in others)
    # 600 coins, 3.3 standard deviations.
    assert len(others) / len(unknown) == pytest.approx(0.5, abs=0.068)


def test_each_statement_has_each_label_equally_often(made: Split) -> None:
    """So the best that looks at the statement alone is right on a third."""
    for part in (made.training, made.test):
        labels = defaultdict[str, Counter[str]](Counter)
        for question in part:
            labels[str(question.second)][str(question.answer)] += 1
        assert all(len(set(of_one.values())) == 1 for of_one in labels.values())
        assert all(len(of_one) == 3 for of_one in labels.values())


@pytest.mark.parametrize("whole", [True, False], ids=["both texts", "the first text"])
def test_words_without_their_order_are_worth_little_more(made: Split, whole: bool) -> None:
    def read(question: Example) -> str:
        return f"{question.text} {question.second}" if whole else question.text

    training = [msgspec.structs.replace(q, text=read(q)) for q in made.training]
    said = naive_bayes(training, [read(q) for q in made.test])
    # 510 questions, 3.3 standard deviations.
    right = sum(q.answer == label for q, label in zip(made.test, said, strict=True))
    assert right / N == pytest.approx(1 / 3, abs=0.07)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 500])
def test_any_number_of_examples_can_be_made(n: int) -> None:
    split = EntailmentConfig(training=n, test=n).make(0)
    assert (len(split.training), len(split.test)) == (n, n)
    counts = Counter(question.answer for question in split.test)
    assert max(counts.values()) == -(-n // 3)
