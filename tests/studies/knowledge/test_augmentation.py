"""Texts written in several ways."""

import pytest

from regard.metrics import Interval
from regard.studies.finding import Verdict
from regard.studies.knowledge.augmentation import TEXTS, Scores, augmentation, judged
from regard.studies.knowledge.fictional import small_world


def scores(together: float, afterwards: float) -> Scores:
    both = (Interval(value=x, low=x, high=x) for x in (together, afterwards))
    return Scores(*both)


FOUND = {
    "one biography": scores(0.4, 0.2),
    "five wordings": scores(0.8, 0.4),
    "five, permuted": scores(0.9, 0.5),
}


def test_all_texts_are_about_the_same_facts() -> None:
    people = [
        [(p.name, p.facts) for p in small_world(80, 0.0, 0, **options).people]
        for options in TEXTS.values()
    ]
    assert people[0] == people[1] == people[2]


def test_what_the_claim_depends_on() -> None:
    assert all(number.holds for number in judged(FOUND))
    for text, worse in (
        ("one biography", scores(0.1, 0.2)),
        ("five, permuted", scores(0.3, 0.5)),
        ("five, permuted", scores(0.9, 0.1)),
    ):
        assert not all(number.holds for number in judged({**FOUND, text: worse}))


@pytest.mark.slow
def test_without_training_no_text_is_better() -> None:
    assert augmentation(people=80, steps=1).verdict is Verdict.FAILS
