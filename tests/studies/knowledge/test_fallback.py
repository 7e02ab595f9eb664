"""People of whom nothing was read."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.fallback import Guesses, counted, fallback, judged

OTHER = Guesses(home=0.45, by_chance=0.15, common=0.3, right=0.15, probability=0.8)
TELLING = Guesses(home=0.65, by_chance=0.15, common=0.3, right=0.55, probability=0.9)


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


def test_what_the_claim_wants() -> None:
    assert all(number.holds for number in judged(OTHER, TELLING))
    for without, telling in (
        (OTHER, TELLING._replace(right=0.2)),
        (OTHER, TELLING._replace(home=0.2)),
        (OTHER, TELLING._replace(probability=0.1)),
        (OTHER._replace(home=0.15), TELLING),
        (OTHER._replace(common=0.05), TELLING),
        (OTHER._replace(right=0.5), TELLING),
    ):
        assert not all(number.holds for number in judged(without, telling))


@pytest.mark.slow
def test_the_verdict() -> None:
    assert fallback().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_names_that_tell_nothing_make_no_guess_right() -> None:
    assert fallback(correlation=0.0).verdict is Verdict.FAILS
