"""Facts asked in the direction in which they weren't read."""

from regard.metrics import Interval
from regard.studies.finding import Verdict
from regard.studies.knowledge.reversal import TEXTS, Directions, judged, one_place_each, reversal

NONE, ALL = (Interval(value=x, low=x, high=x) for x in (0.0, 1.0))
FOUND = {
    "name first": Directions(forward=ALL, backward=NONE),
    "place first": Directions(forward=NONE, backward=ALL),
    "both": Directions(forward=ALL, backward=ALL),
}


def test_nobody_shares_a_place() -> None:
    names, places = zip(*one_place_each(3), strict=True)
    assert len(set(names)) == len(set(places)) == 100


def test_all_texts_have_as_many_sentences() -> None:
    assert {len(sentences) for sentences in TEXTS.values()} == {4}


def test_what_the_claim_depends_on() -> None:
    assert all(number.holds for number in judged(FOUND))
    for text in FOUND:
        for worse in (
            Directions(forward=FOUND[text].backward, backward=FOUND[text].forward),
            Directions(forward=NONE, backward=NONE),
        ):
            if worse != FOUND[text]:
                assert not all(number.holds for number in judged({**FOUND, text: worse}))


def test_without_training_nothing_is_recalled() -> None:
    assert reversal(steps=1).verdict is Verdict.FAILS
