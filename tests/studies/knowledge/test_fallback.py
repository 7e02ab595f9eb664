"""Answers about absent people."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.absent import (
    CHANCE,
    COMMON,
    CONFIDENCE,
    HOME,
    RIGHT,
    counted,
    fallback,
    judged_guesses,
)

OTHER = {HOME: 0.45, CHANCE: 0.15, COMMON: 0.3, RIGHT: 0.15, CONFIDENCE: 0.8}
INFORMATIVE = {HOME: 0.65, CHANCE: 0.15, COMMON: 0.3, RIGHT: 0.55, CONFIDENCE: 0.9}


def test_shares_are_counted() -> None:
    guesses = counted(
        ["Rome", "Rome", "Oslo", "Bern"],
        ["Rome", "Oslo", "Oslo", "Rome"],
        ["Bern", "Rome", "Rome", "Oslo"],
        "Rome",
    )
    assert guesses == {HOME: 0.5, CHANCE: 6 / 16, COMMON: 0.5, RIGHT: 0.25}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_guesses(OTHER, INFORMATIVE))
    for other, informative in (
        (OTHER, INFORMATIVE | {RIGHT: 0.2}),
        (OTHER, INFORMATIVE | {HOME: 0.2}),
        (OTHER, INFORMATIVE | {CONFIDENCE: 0.1}),
        (OTHER | {HOME: 0.15}, INFORMATIVE),
        (OTHER | {COMMON: 0.05}, INFORMATIVE),
        (OTHER | {RIGHT: 0.5}, INFORMATIVE),
    ):
        assert not all(number.holds for number in judged_guesses(other, informative))


@pytest.mark.slow
def test_the_verdict() -> None:
    assert fallback().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_without_informative_names_the_claim_fails() -> None:
    assert fallback(correlation=0.0).verdict is Verdict.FAILS
