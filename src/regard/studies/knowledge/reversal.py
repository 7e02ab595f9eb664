"""Recall of facts in the direction in which they were read, and in the other."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from regard.metrics import Interval
from regard.studies.figure import bar_chart
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.knowledge.fictional import on_text, right_answers, small_recipe
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks import names
from regard.tasks.examples import Example
from regard.tasks.world import WorldConfig, make_world

Pair = tuple[str, str]
"""A person's name and birthplace; each place belongs to one person."""

NAME_FIRST = ("{name} was born in {place}.", "{name} comes from {place}.")
PLACE_FIRST = ("{place} is the birthplace of {name}.", "{place} is where {name} was born.")
TEXTS = {
    "name first": NAME_FIRST * 2,
    "place first": PLACE_FIRST * 2,
    "both": NAME_FIRST + PLACE_FIRST,
}
"""Sentences about everybody; each text has four per person."""
WORDINGS = {"name → place": "Where was {name} born?", "place → name": "Who was born in {place}?"}
Scores = Mapping[str, Interval]
"""Accuracy on people in the text only, by text."""


@study(trains=True)
def reversal(
    steps: Annotated[int, Meta(ge=1, le=4000)] = 800,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Can a model that read "A was born in B" answer who was born in B?

    No. A fact can be recalled in the direction in which it was read; in the other direction, the
    model answers as if it had never read it. The text has to state the fact in both directions.

    $$ P(B \mid A) \text{ does not determine } P(A \mid B) $$

    This is the reversal curse of Berglund et al. 2023 (arXiv:2309.12288), in a world where a
    hundred people were each born in a different place. The text names the person first, or the
    place first, or does both, with the same number of sentences. QA training has questions in both
    directions about half of the people; the test questions are about the others. The loss doesn't
    train the reverse: a name that comes first is never predicted from the place.

    Figure. Accuracy on people who are not in QA training, by direction of the sentences in the
    text, with 95 % intervals.

    Args:
        steps: training steps
    """
    pairs = one_place_each(seed)
    known, asked = pairs[::2], pairs[1::2]
    recipe = small_recipe(steps, seed)
    questions = [one for wording in WORDINGS.values() for one in _questions(wording, known)]
    every = [_write(one, pair) for one in TEXTS["both"] for pair in pairs]
    runs = {}
    for text, sentences in TEXTS.items():
        documents = [_write(one, pair) for one in sentences for pair in pairs]
        runs[text] = on_text(documents, recipe, questions, vocabulary=every)
    found = {
        direction: {
            text: right_answers(run, _questions(wording, asked)) for text, run in runs.items()
        }
        for direction, wording in WORDINGS.items()
    }
    yield from judged(*found.values())
    yield bar_chart(found, y="accuracy", y_limits=(0, 1.05))


def judged(forward: Scores, backward: Scores) -> Measurements:
    """Yield the measurements that the claim depends on."""
    right = {"forward": forward, "backward": backward}
    for text, high in (("name first", "forward"), ("place first", "backward")):
        (low,) = right.keys() - {high}
        yield at_least(f"{text}: accuracy, {high}", right[high][text].value, 0.7)
        yield at_most(f"{text}: accuracy, {low}", right[low][text].value, 0.1)
    for direction, scores in right.items():
        yield at_least(f"both: accuracy, {direction}", scores["both"].value, 0.7)


def one_place_each(seed: int) -> list[Pair]:
    """Return people with distinct birthplaces, one for each place."""
    config = WorldConfig(people=len(names.PLACES), absent=0, seed=seed)
    return [
        (person.name, place)
        for person, place in zip(make_world(config).people, names.PLACES, strict=True)
    ]


def _questions(wording: str, pairs: Sequence[Pair]) -> list[Example]:
    """Return questions whose answer is the part of each pair that the wording doesn't name."""
    return [
        Example(text=_write(wording, (name, place)), answer=place if "{name}" in wording else name)
        for name, place in pairs
    ]


def _write(wording: str, pair: Pair) -> str:
    name, place = pair
    return wording.format(name=name, place=place)
