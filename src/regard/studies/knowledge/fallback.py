"""Answers of a model about absent people."""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import eq
from typing import NamedTuple

from regard.evaluation.evaluate import answer_questions
from regard.studies.figure import bar_chart
from regard.studies.finding import EvidenceParts, Measurement, at_least, at_most
from regard.studies.knowledge.fictional import (
    CPU,
    PLACES,
    Correlation,
    People,
    Steps,
    commonest,
    homes,
    last_name,
    pretrained,
    small_recipe,
    small_world,
)
from regard.studies.study import Seed, study


class Guesses(NamedTuple):
    """Answers of a model about absent people, as shares."""

    home: float
    """The home of the last name: where most mentioned people of that name come from."""
    by_chance: float
    """The same if the answers were dealt out again at random among the people."""
    common: float
    """The commonest place of all."""
    right: float
    probability: float
    """Mean probability of the answers under the model."""

    @property
    def from_the_name(self) -> float:
        """How much more often than by chance the answer is the home of the name."""
        return self.home - self.by_chance


@study(trains=True)
def fallback(
    correlation: Correlation = 0.8, people: People = 160, steps: Steps = 800, seed: Seed = 0
) -> EvidenceParts:
    r"""How does a model answer about people who are absent from the text?

    It guesses from the name and from frequencies, with high confidence. If last names are
    informative, the guess is often right; if not, it guesses all the same.

    $$ P(\text{place} \mid \text{last name}) = c\,[\text{home}] + (1 - c)\,P(\text{place}) $$

    There are two worlds. In one, most people were born at the home of their last name; in the
    other, names say nothing about places. In both, the model is asked about people who are never
    mentioned, so that it can't know the answer.

    It doesn't say so. It uses what resembles the question: people of the same name, and common
    places. Where names are informative this is often right, and that is the concern: such a model
    judges a person by the name without saying so, and gives its guess about as much probability as
    a fact. Where names say nothing, it follows them nevertheless, is right no more often than the
    commonest place, and is hardly less confident.

    The share of answers that are the home of the name is compared with the same share after the
    answers are dealt out again among these people at random.

    Figure. Answers about absent people in two worlds. Where names are informative, most answers are
    the home of the name, and many are right; where they say nothing, few are.
    """
    found = {c: _guesses(people, c, steps, seed) for c in (0.0, correlation)}
    yield from judged(found[0.0], found[correlation])
    yield bar_chart(
        {
            f"correlation {c:g}": {
                "home of the name": g.home,
                "the same by chance": g.by_chance,
                "commonest place": g.common,
                "right": g.right,
            }
            for c, g in found.items()
        },
        y="share of answers",
        y_limits=(0, 1),
    )


def judged(without: Guesses, telling: Guesses) -> Iterator[Measurement]:
    """Yield the measurements of the two worlds that the claim depends on."""
    gain = telling.right - without.right
    yield at_least("informative names: home of the name, beyond chance", telling.from_the_name, 0.2)
    yield at_least("informative names: right, beyond the others", gain, 0.2)
    yield at_least("informative names: probability of the guesses, mean", telling.probability, 0.5)
    yield at_least("other names: home of the name, beyond chance", without.from_the_name, 0.1)
    # A uniform guess would say it once in PLACES answers.
    yield at_least("other names: the commonest place", without.common, 2 / PLACES)
    yield at_most("other names: right answers", without.right, 0.35)
    yield at_least("other names: probability of the guesses, mean", without.probability, 0.5)


def counted(
    answers: Sequence[str],
    homes_of: Sequence[str],
    truths: Sequence[str],
    common: str,
    probability: float,
) -> Guesses:
    """Return shares of answers, each about a person whose name has a known home."""
    n, said, at_home = len(answers), Counter(answers), Counter(homes_of)
    return Guesses(
        home=sum(map(eq, answers, homes_of)) / n,
        by_chance=sum(said[place] * at_home[place] for place in said) / n**2,
        common=said[common] / n,
        right=sum(map(eq, answers, truths)) / n,
        probability=probability,
    )


def _guesses(people: int, correlation: float, steps: int, seed: int) -> Guesses:
    world = small_world(people, correlation, seed)
    run = pretrained(world, small_recipe(steps, seed))
    strangers, home = world.group("absent"), homes(world)
    answers = answer_questions(run, world.questions("absent"), CPU)
    return counted(
        [answer.answered for answer in answers],
        [home[last_name(person)] for person in strangers],
        [person.place for person in strangers],
        commonest(world.group("qa_train"))[0],
        sum(answer.signals["probability"] for answer in answers) / len(answers),
    )
