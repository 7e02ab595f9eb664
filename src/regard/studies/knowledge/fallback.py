"""Answers of a model about people who are absent from its text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import eq

from regard.evaluation.answers import answer
from regard.studies.figure import bar_chart
from regard.studies.finding import Measurements, at_least, at_most
from regard.studies.knowledge import fictional
from regard.studies.knowledge.fictional import Correlation, People, Steps
from regard.studies.study import EvidenceParts, Seed, study
from regard.uncertainty.signals import quick_signals

HOME, CHANCE = "home of the name", "by chance"
"""Share of answers that are the home of the last name, the most frequent birthplace of mentioned
people of this name; and the same if the answers are permuted at random among the people."""
COMMON, RIGHT = "most frequent place", "right"
SHARES = (HOME, CHANCE, COMMON, RIGHT)
CONFIDENCE = "mean probability"
Guesses = Mapping[str, float]
"""Shares of the answers about absent people, and their mean probability under the model."""


@study(trains=True)
def fallback(
    correlation: Correlation = 0.8, people: People = 160, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""How does a model answer about people who are absent from the text?

    It guesses from the name and from frequencies, with high confidence. If last names are
    informative, the guess is often right; if they aren't, it guesses in the same way.

    $$ P(\text{place} \mid \text{last name}) = c\,[\text{home}] + (1 - c)\,P(\text{place}) $$

    In one world, most people were born at the home of their last name; in the other, names and
    places are independent. The share of answers that are the home of the name is compared with the
    same share after a random permutation of the answers among these people.

    Figure. Answers about absent people in two worlds. If names are informative, most answers are
    the home of the name, and many are right; if they aren't, few are.
    """
    found = {c: _guesses(people, c, steps, seed) for c in (0.0, correlation)}
    yield from judged(found[0.0], found[correlation])
    shares = {
        f"correlation {c:g}": {name: guesses[name] for name in SHARES}
        for c, guesses in found.items()
    }
    yield bar_chart(shares, y="share of answers", y_limits=(0, 1))


def judged(other: Guesses, informative: Guesses) -> Measurements:
    """Yield the measurements of both worlds that the claim depends on."""
    for names, one, low in (("informative", informative, 0.2), ("other", other, 0.1)):
        yield at_least(
            f"{names} names: homes of the name minus chance", one[HOME] - one[CHANCE], low
        )
        yield at_least(f"{names} names: mean probability of the answers", one[CONFIDENCE], 0.5)
    gain = informative[RIGHT] - other[RIGHT]
    yield at_least("accuracy, informative minus other names", gain, 0.2)
    # A uniform guess would name it once in PLACES answers.
    yield at_least(
        "other names: share of the most frequent place", other[COMMON], 2 / fictional.PLACES
    )
    yield at_most("other names: accuracy", other[RIGHT], 0.35)


def counted(
    answers: Sequence[str],
    homes_of: Sequence[str],
    truths: Sequence[str],
    common: str,
    probability: float,
) -> Guesses:
    """Return shares of answers, each about a person whose name has a known home."""
    n, said, at_home = len(answers), Counter(answers), Counter(homes_of)
    return {
        HOME: sum(map(eq, answers, homes_of)) / n,
        CHANCE: sum(said[place] * at_home[place] for place in said) / n**2,
        COMMON: said[common] / n,
        RIGHT: sum(map(eq, answers, truths)) / n,
        CONFIDENCE: probability,
    }


def _guesses(people: int, correlation: float, steps: int, seed: int) -> Guesses:
    world = fictional.small_world(people, correlation, seed)
    run = fictional.pretrained(world, fictional.small_recipe(steps, seed))
    strangers, home = world.group("absent"), fictional.homes(world)
    answers = answer(run, world.questions("absent"), fictional.CPU, signals=quick_signals())
    return counted(
        [one.answered for one in answers],
        [home[fictional.last_name(person)] for person in strangers],
        [person.place for person in strangers],
        fictional.commonest(world.group("qa_train"))[0],
        sum(one.confidence for one in answers) / len(answers),
    )
