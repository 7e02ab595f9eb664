"""Recall after training on different texts: with and without the facts, changed, in one direction,
and in several wordings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import eq
from random import Random
from statistics import fmean
from typing import Any

from regard.metrics import Interval
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.studies.figure import Line, bar_chart, chart, figure, series
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import Correlation, People, Steps, right_answers
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import share_error
from regard.tasks import names
from regard.tasks.examples import Example, texts_of
from regard.tasks.rng import choice
from regard.tasks.world import World, WorldConfig, make_world
from regard.training.sources.documents import DocumentSource

Scores = Mapping[str, Interval]
"""Accuracy on people in the text only, by training or text."""

PRETRAINED = "pretrained"
NOT_PRETRAINED = "not pretrained"
WITHOUT_THEM = "text without these people"
SPAN_CORRUPTION = "span corruption, then questions"
ARMS: Mapping[str, Callable[[World, Recipe], Run]] = {
    PRETRAINED: fictional.pretrained,
    NOT_PRETRAINED: fictional.from_scratch,
    WITHOUT_THEM: fictional.without_them,
    SPAN_CORRUPTION: fictional.corrupted_first,
}


@study(trains=True)
def pretraining(
    people: People = 160, correlation: Correlation = 0.0, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""Why can a model answer questions after pretraining, but not without?

    The facts come from pretraining: without text, or with the same text about other people, a model
    is no better than a guess.

    $$ \text{accuracy without the facts} \le \max_y P(y) $$

    Four models answer questions about the birthplaces of people who are not in QA training. All of
    them learn the form of an answer from questions about other people. The first is also trained on
    a text about everybody, the second on no text, and the third on the text without the sentences
    about the people in the test questions. The fourth is pretrained on the text by span corruption,
    with words as tokens, and then finetuned on the questions. With a correlation above 0, even a
    model without text can beat the most frequent place.

    Figure. Accuracy of each model on people in the text only, with 95 % intervals. Dotted: always
    answering {place}.
    """
    world = fictional.small_world(people, correlation, seed)
    recipe = fictional.small_recipe(steps, seed)
    questions = world.questions("text_only")
    scores = {arm: right_answers(train(world, recipe), questions) for arm, train in ARMS.items()}
    place, share = fictional.commonest(world.group("text_only"))
    yield from judged_pretraining(scores, share, len(questions))
    guess = Line(y=share, label=f"always {place}")
    yield figure(bar_chart({"": scores}, guess, y="accuracy", y_limits=(0, 1.05)), place=place)


def judged_pretraining(scores: Scores, guess: float, n: int) -> Measurements:
    """Yield the measurements of n answers, where the best guess has the accuracy `guess`."""
    most = guess + 3 * share_error(guess, n)
    yield at_least(PRETRAINED, scores[PRETRAINED].value, 2 * guess)
    yield at_most(NOT_PRETRAINED, scores[NOT_PRETRAINED].value, most)
    yield at_most(WITHOUT_THEM, scores[WITHOUT_THEM].value, most)
    yield at_least(SPAN_CORRUPTION, scores[SPAN_CORRUPTION].value, most)


DOSES = (0, 1, 2, 3, 5)
"""Number of changed biographies of each changed person; everybody has five."""
NEW, OLD = "changed people: the new place", "changed people: the old place"
OTHERS = "other people: right"


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
    text_only, draw = world.group("text_only"), Random(seed)
    places, old = fictional.mentioned_places(world), [person.place for person in text_only]
    new = {
        p.name: choice(draw, [place for place in places if place != p.place])
        for p in text_only[::2]
    }
    found = {}
    for dose in DOSES:
        run = fictional.pretrained(world, recipe, rewrite(world, new, dose))
        answers = fictional.answers(run, world.questions("text_only"))
        given = [one.answered for one in answers]
        found[dose] = {
            NEW: fmean(map(eq, given[::2], new.values())),
            OLD: fmean(map(eq, given[::2], old[::2])),
            OTHERS: fmean(map(eq, given[1::2], old[1::2])),
        }
    yield from judged_changes(found)
    doses = [dose / max(DOSES) for dose in DOSES]
    labels = (NEW, OLD, OTHERS)
    yield chart(
        *(series(doses, [one[label] for one in found.values()], label) for label in labels),
        x="changed share of a person's biographies",
        y="share of answers",
        y_limits=(0, 1.05),
    )


def judged_changes(found: Mapping[int, Mapping[str, float]]) -> Measurements:
    """Yield the measurements of answers after each number of changed biographies."""
    none, one, *_, every = found.values()
    yield at_least("nothing changed: the old place", none[OLD], 0.5)
    yield at_least("all changed: the new place", every[NEW], 0.5)
    yield at_most("all changed: the old place", every[OLD], 0.2)
    yield at_most("one of five changed: the new place", one[NEW], 0.1)
    least = min(answers[OTHERS] for answers in found.values())
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


NAME_FIRST = ("{name} was born in {place}.", "{name} comes from {place}.")
PLACE_FIRST = ("{place} is the birthplace of {name}.", "{place} is where {name} was born.")
DIRECTIONS = {
    "name first": NAME_FIRST * 2,
    "place first": PLACE_FIRST * 2,
    "both": NAME_FIRST + PLACE_FIRST,
}
"""Sentences about everybody; each text has four per person."""
WORDINGS = {"name → place": "Where was {name} born?", "place → name": "Who was born in {place}?"}


@study(trains=True)
def reversal(steps: Steps = 800, seed: Seed = 0) -> EvidenceParts:
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
    """
    pairs = one_place_each(seed)
    known, asked = pairs[::2], pairs[1::2]
    recipe = fictional.small_recipe(steps, seed)
    questions = [one for wording in WORDINGS.values() for one in _questions(wording, known)]
    documents = {
        text: [one.format(name=name, place=place) for one in sentences for name, place in pairs]
        for text, sentences in DIRECTIONS.items()
    }
    vocabulary = [*documents["both"], *texts_of(questions)]
    runs = {
        text: fictional.trained(DocumentSource(written, questions, index=False), recipe, vocabulary)
        for text, written in documents.items()
    }
    found = {
        direction: {
            text: right_answers(run, _questions(wording, asked)) for text, run in runs.items()
        }
        for direction, wording in WORDINGS.items()
    }
    yield from judged_directions(*found.values())
    yield bar_chart(found, y="accuracy", y_limits=(0, 1.05))


def judged_directions(forward: Scores, backward: Scores) -> Measurements:
    """Yield the measurements that the claim depends on."""
    yield at_least("name first: accuracy, forward", forward["name first"].value, 0.7)
    yield at_most("name first: accuracy, backward", backward["name first"].value, 0.1)
    yield at_least("place first: accuracy, backward", backward["place first"].value, 0.7)
    yield at_most("place first: accuracy, forward", forward["place first"].value, 0.1)
    yield at_least("both: accuracy, forward", forward["both"].value, 0.7)
    yield at_least("both: accuracy, backward", backward["both"].value, 0.7)


def one_place_each(seed: int) -> list[tuple[str, str]]:
    """Return people with distinct birthplaces, one for each place."""
    people = make_world(WorldConfig(people=len(names.PLACES), absent=0, seed=seed)).people
    return [(person.name, place) for person, place in zip(people, names.PLACES, strict=True)]


def _questions(wording: str, pairs: Sequence[tuple[str, str]]) -> list[Example]:
    """Return questions whose answer is the part of each pair that the wording doesn't name."""
    return [
        Example(
            text=wording.format(name=name, place=place),
            answer=place if "{name}" in wording else name,
        )
        for name, place in pairs
    ]


TEXTS: dict[str, dict[str, Any]] = {
    "one biography": {"augment": False, "order": "place-last"},
    "five wordings": {"order": "place-last"},
    "five, permuted": {"order": "permuted"},
}
"""Options of the world for each text; all are about the same people and facts."""
TIMES = {"questions mixed in": fictional.pretrained, "questions afterwards": fictional.text_first}
"""Trainings with questions during and after pretraining."""


@study(trains=True)
def augmentation(people: People = 300, steps: Steps = 1600, seed: Seed = 0) -> EvidenceParts:
    r"""How must a text be written, so that a model can answer from it?

    In several wordings, and mixed with questions. If the questions come afterwards, it helps to
    vary the order of the facts, too (seed 0). From one biography per person in a fixed order, the
    model recalls fewer facts than from five with permuted facts. If the questions come after the
    text, this gain is smaller and depends on the seed.

    $$ P(\text{place} \mid \text{question}) \ll P(\text{place} \mid \text{biography so far}) $$

    This repeats the experiment of Allen-Zhu and Li 2023 (arXiv:2309.14316) with far smaller models.
    In the fixed order the place of birth comes last, and a model may learn to predict it from
    everything before it; the name alone, as in a question, is then not enough. Each model is
    trained for the same number of steps, so a single biography is read five times as often as each
    of five. With questions afterwards, the gain by five permuted biographies is smaller than with
    questions mixed in, at each of five seeds (0 to 4); at one it is only 0.05.

    Figure. Accuracy on people who are not in QA training, by text and by time of the questions,
    with 95 % intervals.
    """
    recipe = fictional.small_recipe(steps, seed)
    world_of = partial(fictional.small_world, people, 0.0, seed)
    worlds = {text: world_of(**options) for text, options in TEXTS.items()}
    found = {
        when: {
            text: right_answers(train(world, recipe), world.questions("text_only"))
            for text, world in worlds.items()
        }
        for when, train in TIMES.items()
    }
    yield from judged_wordings(*found.values())
    yield bar_chart(found, y="accuracy", y_limits=(0, 1.05))


def judged_wordings(mixed: Scores, afterwards: Scores) -> Measurements:
    """Yield the measurements that the claim depends on."""
    one, *_, permuted = TEXTS
    for when, scores in {"mixed": mixed, "afterwards": afterwards}.items():
        gain = scores[permuted].value - scores[one].value
        yield at_least(f"{when}: permuted minus one biography", gain, 0)
    gain = mixed[one].value - afterwards[one].value
    yield at_least("one biography: mixed minus afterwards", gain, 0)
