"""Texts written in several ways."""

import pytest

from regard.metrics import Interval
from regard.studies.finding import Verdict
from regard.studies.knowledge.fictional import small_world
from regard.studies.knowledge.training_texts import TEXTS, augmentation, judged_wordings

MIXED = {"one biography": 0.4, "five wordings": 0.8, "five, permuted": 0.9}
AFTERWARDS = {"one biography": 0.2, "five wordings": 0.4, "five, permuted": 0.5}


def holds(mixed: dict[str, float], afterwards: dict[str, float]) -> bool:
    found = ({text: Interval(x, x, x) for text, x in of.items()} for of in (mixed, afterwards))
    return all(number.holds for number in judged_wordings(*found))


def test_all_texts_are_about_the_same_facts() -> None:
    people = [
        [(p.name, p.facts) for p in small_world(80, 0.0, 0, **options).people]
        for options in TEXTS.values()
    ]
    assert people[0] == people[1] == people[2]


def test_the_claim_needs_every_measurement() -> None:
    assert holds(MIXED, AFTERWARDS)
    assert not holds({**MIXED, "one biography": 0.1}, AFTERWARDS)
    assert not holds({**MIXED, "five, permuted": 0.3}, AFTERWARDS)
    assert not holds(MIXED, {**AFTERWARDS, "five, permuted": 0.1})


@pytest.mark.slow
def test_without_training_no_text_is_better() -> None:
    assert augmentation(people=80, steps=1).verdict is Verdict.FAILS
