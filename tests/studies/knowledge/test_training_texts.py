"""Training texts: wordings, directions, false places, pretraining."""

import pytest

from regard.metrics import Interval
from regard.studies.finding import Measurements
from regard.studies.knowledge.fictional import small_world
from regard.studies.knowledge.training_texts import (
    DIRECTIONS,
    DOSES,
    NEW,
    NOT_PRETRAINED,
    OLD,
    OTHERS,
    PRETRAINED,
    SPAN_CORRUPTION,
    TEXTS,
    WITHOUT_THEM,
    judged_changes,
    judged_directions,
    judged_pretraining,
    judged_wordings,
    one_place_each,
    rewrite,
)
from tiny_studies import broken, needs_every_measurement


def certain(values: dict[str, float]) -> dict[str, Interval]:
    return {name: Interval(value, value, value) for name, value in values.items()}


def test_all_texts_are_about_the_same_facts() -> None:
    people = [
        [(p.name, p.facts) for p in small_world(80, 0.0, 0, **options).people]
        for options in TEXTS.values()
    ]
    assert people[0] == people[1] == people[2]


def test_augmentation_needs_every_measurement() -> None:
    mixed = certain({"one biography": 0.4, "five wordings": 0.8, "five, permuted": 0.9})
    after = certain({"one biography": 0.2, "five wordings": 0.4, "five, permuted": 0.5})
    needs_every_measurement(
        judged_wordings,
        (mixed, after),
        (mixed | certain({"one biography": 0.1}), after),
        (mixed | certain({"five, permuted": 0.3}), after),
        (mixed, after | certain({"five, permuted": 0.1})),
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


def test_counterfactual_needs_every_measurement() -> None:
    shares = zip(DOSES, (0.0, 0.1, 0.2, 0.4, 0.8), (0.9, 0.7, 0.6, 0.4, 0.0), strict=True)
    found = {dose: {NEW: new, OLD: old, OTHERS: 0.9} for dose, new, old in shares}
    none, one, *_, every = DOSES
    needs_every_measurement(
        judged_changes,
        (found,),
        *(
            (found | {dose: found[dose] | worse},)
            for dose, worse in (
                (none, {OLD: 0.4}),
                (one, {NEW: 0.5}),
                (one, {OTHERS: 0.5}),
                (every, {NEW: 0.3}),
                (every, {OLD: 0.4}),
            )
        ),
    )


def test_pretraining_needs_every_measurement() -> None:
    def judged(*shares: float) -> Measurements:
        arms = (PRETRAINED, NOT_PRETRAINED, WITHOUT_THEM, SPAN_CORRUPTION)
        scores = certain(dict(zip(arms, shares, strict=True)))
        return judged_pretraining(scores, guess=0.25, n=100)

    needs_every_measurement(
        judged,
        (0.85, 0.25, 0.3, 0.6),  # a guess, within three standard errors
        (0.3, 0.1, 0.1, 0.6),  # no better than a guess
        (0.85, 0.1, 0.6, 0.6),  # something else determines the answer
        (0.85, 0.6, 0.1, 0.6),
        (0.85, 0.1, 0.1, 0.3),  # span corruption stores nothing
    )


def test_nobody_shares_a_place_and_all_texts_have_as_many_sentences() -> None:
    names, places = zip(*one_place_each(3), strict=True)
    assert len(set(names)) == len(set(places)) == 100
    assert {len(sentences) for sentences in DIRECTIONS.values()} == {4}


def test_reversal_needs_every_measurement() -> None:
    forward = certain({"name first": 1.0, "place first": 0.0, "both": 1.0})
    backward = certain({"name first": 0.0, "place first": 1.0, "both": 1.0})
    none = certain(dict.fromkeys(DIRECTIONS, 0.0))
    others = [
        (forward | {text: one[text]}, backward | {text: other[text]})
        for text in DIRECTIONS
        for one, other in ((backward, forward), (none, none))
    ]
    both = (forward, backward)
    needs_every_measurement(judged_directions, both, *(other for other in others if other != both))


def test_a_tenth_is_the_bound_of_a_single_change() -> None:
    found = {dose: {NEW: 0.0, OLD: 0.8, OTHERS: 0.8} for dose in DOSES}
    found[5] |= {NEW: 0.8, OLD: 0.0}
    assert broken(judged_changes(found)) == []
    found[1] |= {NEW: 0.2}
    assert broken(judged_changes(found)) == ["one of five changed: the new place"]
