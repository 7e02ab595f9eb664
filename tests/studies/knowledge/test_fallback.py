"""Answers about absent people."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.fallback import Guesses, counted, fallback, judged

OTHER = Guesses(home=0.45, by_chance=0.15, common=0.3, right=0.15, probability=0.8)
INFORMATIVE = Guesses(home=0.65, by_chance=0.15, common=0.3, right=0.55, probability=0.9)


def test_shares_are_counted() -> None:
    guesses = counted(
        ["Rome", "Rome", "Oslo", "Bern"],
        ["Rome", "Oslo", "Oslo", "Rome"],
        ["Bern", "Rome", "Rome", "Oslo"],
        "Rome",
        0.5,
    )
    assert guesses == Guesses(home=0.5, by_chance=6 / 16, common=0.5, right=0.25, probability=0.5)
    assert guesses.from_the_name == pytest.approx(1 / 8)


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged(OTHER, INFORMATIVE))
    for other, informative in (
        (OTHER, INFORMATIVE._replace(right=0.2)),
        (OTHER, INFORMATIVE._replace(home=0.2)),
        (OTHER, INFORMATIVE._replace(probability=0.1)),
        (OTHER._replace(home=0.15), INFORMATIVE),
        (OTHER._replace(common=0.05), INFORMATIVE),
        (OTHER._replace(right=0.5), INFORMATIVE),
    ):
        assert not all(number.holds for number in judged(other, informative))


@pytest.mark.slow
def test_the_verdict() -> None:
    assert fallback().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_without_informative_names_the_claim_fails() -> None:
    assert fallback(correlation=0.0).verdict is Verdict.FAILS
