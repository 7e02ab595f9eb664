"""Facts asked in the direction in which they weren't read."""

from regard.metrics import Interval
from regard.studies.finding import Verdict
from regard.studies.knowledge.training_texts import (
    DIRECTIONS,
    judged_directions,
    one_place_each,
    reversal,
)

NONE, ALL = (Interval(value=x, low=x, high=x) for x in (0.0, 1.0))
FORWARD = {"name first": ALL, "place first": NONE, "both": ALL}
BACKWARD = {"name first": NONE, "place first": ALL, "both": ALL}


def test_nobody_shares_a_place() -> None:
    names, places = zip(*one_place_each(3), strict=True)
    assert len(set(names)) == len(set(places)) == 100


def test_all_texts_have_as_many_sentences() -> None:
    assert {len(sentences) for sentences in DIRECTIONS.values()} == {4}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_directions(FORWARD, BACKWARD))
    for text in DIRECTIONS:
        for worse in ((BACKWARD[text], FORWARD[text]), (NONE, NONE)):
            if worse != (FORWARD[text], BACKWARD[text]):
                forward, backward = (
                    {**of, text: x} for of, x in zip((FORWARD, BACKWARD), worse, strict=True)
                )
                assert not all(number.holds for number in judged_directions(forward, backward))


def test_without_training_nothing_is_recalled() -> None:
    assert reversal(steps=1).verdict is Verdict.FAILS
