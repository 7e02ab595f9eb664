"""Biographies that state another place."""

import pytest

from regard.studies.finding import Verdict
from regard.studies.knowledge.fictional import small_world
from regard.studies.knowledge.training_texts import (
    DOSES,
    NEW,
    OLD,
    OTHERS,
    counterfactual,
    judged_changes,
    rewrite,
)

FOUND = dict(
    zip(
        DOSES,
        [
            {NEW: 0.0, OLD: 0.9, OTHERS: 0.9},
            {NEW: 0.1, OLD: 0.7, OTHERS: 0.9},
            {NEW: 0.2, OLD: 0.6, OTHERS: 0.9},
            {NEW: 0.4, OLD: 0.4, OTHERS: 0.9},
            {NEW: 0.8, OLD: 0.0, OTHERS: 0.9},
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
        (none, {**FOUND[none], OLD: 0.4}),
        (one, {**FOUND[one], NEW: 0.5}),
        (one, {**FOUND[one], OTHERS: 0.5}),
        (every, {**FOUND[every], NEW: 0.3}),
        (every, {**FOUND[every], OLD: 0.4}),
    ):
        assert not all(number.holds for number in judged_changes({**FOUND, dose: worse}))


def test_without_training_no_answer_follows_the_text() -> None:
    assert counterfactual(people=80, steps=1).verdict is Verdict.FAILS
