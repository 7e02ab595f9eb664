"""Answers of models trained on a text in which some facts were changed."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from regard.evaluation.answers import answer
from regard.studies.figure import chart, series
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import People, Steps
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.rng import choice
from regard.tasks.world import World
from regard.uncertainty.signals import quick_signals

DOSES = (0, 1, 2, 3, 5)
"""Number of changed biographies of each changed person; everybody has five."""


class Answers(NamedTuple):
    """Shares of the answers of a model trained on a changed text."""

    new: float
    """About changed people: the place in their changed biographies."""
    old: float
    """About changed people: the original place."""
    unchanged: float
    """About other people: right answers."""


@study(trains=True)
def counterfactual(people: People = 160, steps: Steps = 800, seed: Seed = 0) -> EvidenceParts:
    r"""If a sentence of the text were different, would the answer be different?

    Yes, mostly, if all sentences on the fact are changed. A single one of five hardly matters:
    the new place is given for less than a tenth of the people. Answers about other people stay
    mostly right.

    $$ \text{answer}(\text{text with } y \to y') = y' $$

    For half of the people in the test questions, the place of birth is replaced by another one,
    drawn at random, in some of their five biographies. The model is trained again from the same
    initial weights, in the same order. None of these people is in QA training. With three of five
    biographies changed, the old place is still given about as often as the new one (seed 0).

    Figure. Answers of models trained on texts in which some biographies of every second person
    state another place of birth.
    """
    world, recipe = fictional.small_world(people, 0.0, seed), fictional.small_recipe(steps, seed)
    text_only = world.group("text_only")
    places = fictional.mentioned_places(world)
    draw = Random(seed)
    new = {
        p.name: choice(draw, [place for place in places if place != p.place])
        for p in text_only[::2]
    }
    found = {}
    for dose in DOSES:
        documents = rewrite(world, new, dose)
        run = fictional.on_text(
            documents, recipe, fictional.qa_train(world), vocabulary=world.documents
        )
        answers = answer(run, world.questions("text_only"), fictional.CPU, signals=quick_signals())
        given = {p.name: a.answered for p, a in zip(text_only, answers, strict=True)}
        found[dose] = _shares(world, given, new)
    yield from judged(found)
    doses = [dose / max(DOSES) for dose in DOSES]
    yield chart(
        series(doses, [one.new for one in found.values()], "changed people: the new place"),
        series(doses, [one.old for one in found.values()], "changed people: the old place"),
        series(doses, [one.unchanged for one in found.values()], "other people: right"),
        x="changed share of a person's biographies",
        y="share of answers",
        y_limits=(0, 1.05),
    )


def judged(found: Mapping[int, Answers]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    none, one, *_, every = found.values()
    yield at_least("nothing changed: the old place", none.old, 0.5)
    yield at_least("all changed: the new place", every.new, 0.5)
    yield at_most("all changed: the old place", every.old, 0.2)
    yield at_most("one of five changed: the new place", one.new, 0.25)
    least = min(answers.unchanged for answers in found.values())
    yield at_least("other people: least accuracy over all texts", least, 0.6)


def rewrite(world: World, new: Mapping[str, str], dose: int) -> list[str]:
    """Return the text with another place in the first `dose` biographies of some people.

    `new` maps names to places.
    """
    left = dict.fromkeys(new, dose)
    old = {person.name: person.place for person in world.people}
    documents = []
    for document in world.documents:
        name = document.partition(". ")[0]
        if left.get(name, 0) > 0:
            left[name] -= 1
            document = document.replace(old[name], new[name])
        documents.append(document)
    return documents


def _shares(world: World, given: Mapping[str, str], new: Mapping[str, str]) -> Answers:
    """Return the shares of answers; `given` maps names to answers, `new` to changed places."""
    old = {person.name: person.place for person in world.group("text_only")}

    def share(names: Sequence[str], places: Mapping[str, str]) -> float:
        return float(np.mean([given[name] == places[name] for name in names]))

    changed, others = list(new), [name for name in old if name not in new]
    return Answers(new=share(changed, new), old=share(changed, old), unchanged=share(others, old))
