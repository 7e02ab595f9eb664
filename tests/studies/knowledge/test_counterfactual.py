"""Biographies that state another place."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.fictional import small_world
from regard.studies.knowledge.training_texts import (
    DOSES,
    Answers,
    counterfactual,
    judged_changes,
    rewrite,
)

FOUND = dict(
    zip(
        DOSES,
        [
            Answers(new=0.0, old=0.9, unchanged=0.9),
            Answers(new=0.1, old=0.7, unchanged=0.9),
            Answers(new=0.2, old=0.6, unchanged=0.9),
            Answers(new=0.4, old=0.4, unchanged=0.9),
            Answers(new=0.8, old=0.0, unchanged=0.9),
        ],
        strict=True,
    )
)


@pytest.mark.parametrize("dose", DOSES)
def test_as_many_biographies_as_asked_state_the_new_place(dose: int) -> None:
    world = small_world(80, 0.0, 0)
    person, *_ = world.group("text_only")
    changed = rewrite(world, {person.name: "Nowhere"}, dose)
    assert sum("Nowhere" in text for text in changed) == dose
    pairs = list(zip(world.documents, changed, strict=True))
    assert sum(old != new for old, new in pairs) == dose
    for old, new in pairs:
        assert new in (old, old.replace(person.place, "Nowhere"))


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_changes(FOUND))
    none, one, *_, every = DOSES
    for dose, worse in (
        (none, FOUND[none]._replace(old=0.4)),
        (one, FOUND[one]._replace(new=0.5)),
        (one, FOUND[one]._replace(unchanged=0.5)),
        (every, FOUND[every]._replace(new=0.3)),
        (every, FOUND[every]._replace(old=0.4)),
    ):
        assert not all(number.holds for number in judged_changes({**FOUND, dose: worse}))


def test_without_training_no_answer_follows_the_text() -> None:
    assert counterfactual(people=80, steps=1).verdict is Verdict.FAILS
