"""Answers of a model about absent people."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.drawing import COLORS, panels
from regard.evaluation.answers import answer_questions
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    table,
)
from regard.studies.knowledge.fictional import (
    CPU,
    Correlation,
    People,
    Steps,
    WorldSeed,
    commonest,
    homes,
    last_name,
    pretrained,
    small_recipe,
    small_world,
)
from regard.studies.study import study


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Answers of a model about absent people, as shares."""

    home: float
    """Where most of those mentioned with the same last name come from."""
    by_chance: float
    """The same if the answers were dealt out anew among the people."""
    common: float
    """The commonest place of all."""
    right: float
    probability: float
    """Mean probability of the answers under the model."""

    @property
    def from_the_name(self) -> float:
        """How much oftener than by chance the answer is where the name is at home."""
        return self.home - self.by_chance


@study(
    asked=["practical-4 4.c"],
    question="How does a model answer about people who are absent from the text?",
    claim="It guesses from the name and from frequencies, with high confidence. If last names"
    " are informative, the guess is often right; if not, it guesses all the same.",
    formula=r"P(\text{place} \mid \text{last name}) = c\,[\text{home}] + (1 - c)\,P(\text{place})",
    trains=True,
)
def fallback(
    correlation: Correlation = 0.8,
    people: People = 160,
    steps: Steps = 800,
    seed: WorldSeed = 0,
) -> Evidence:
    """Two worlds, told in the same way: in one, most people were born where their last name is at
    home; in the other, names say nothing. In both, the model is asked about people who are never
    mentioned, so that it can't know.

    It doesn't say so. It takes what is like the question: people of the same name, and common
    places. In the world of telling names this is often right, and that is the danger: such a model
    treats a person by the name, says nothing of it, and gives its guess about as much probability
    as a fact. Where names tell nothing it goes by the name nevertheless, is right no oftener than
    whoever says the commonest place, and is hardly less sure.

    The share of answers where the name is at home is compared with the share that one gets by
    dealing the same answers out among these people at random.
    """
    found = {c: _guesses(people, c, steps, seed) for c in (0.0, correlation)}
    return Evidence(
        numbers=judged(found[0.0], found[correlation]),
        figure=_drawn(found),
        table=table(
            ["correlation", "home of the name", "by chance", "commonest place", "right", "P"],
            [(c, g.home, g.by_chance, g.common, g.right, g.probability) for c, g in found.items()],
        ),
    )


def judged(without: Guesses, telling: Guesses) -> tuple[Measurement, ...]:
    """What the claim wants of the two worlds' guesses."""
    return (
        at_least("telling names: home of the name, beyond chance", telling.from_the_name, 0.2),
        at_least("telling names: right answers beyond others", _gain(without, telling), 0.2),
        at_least("telling names: probability of the guesses, mean", telling.probability, 0.5),
        at_least("other names: home of the name, beyond chance", without.from_the_name, 0.1),
        at_least("other names: the commonest place", without.common, 0.2),
        at_most("other names: right answers", without.right, 0.35),
        at_least("other names: probability of the guesses, mean", without.probability, 0.5),
    )


def counted(
    answers: Sequence[str],
    homes_of: Sequence[str],
    truths: Sequence[str],
    common: str,
    probability: float,
) -> Guesses:
    """Shares of answers, each about a person of whose name the home is known."""
    n, said, at_home = len(answers), Counter(answers), Counter(homes_of)
    return Guesses(
        home=_agreeing(answers, homes_of),
        by_chance=sum(said[place] * at_home[place] for place in said) / n**2,
        common=said[common] / n,
        right=_agreeing(answers, truths),
        probability=probability,
    )


def _agreeing(answers: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(answers, others, strict=True)) / len(answers)


def _gain(without: Guesses, telling: Guesses) -> float:
    return telling.right - without.right


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


def _drawn(found: dict[float, Guesses]) -> Drawing:
    names = ("home of\nthe name", "the same\nby chance", "commonest\nplace", "right")
    with panels(height=2.8) as (figure, (axes,)):
        for i, (c, g) in enumerate(found.items()):
            places = [x + 0.38 * (i - 0.5) for x in range(len(names))]
            values = (g.home, g.by_chance, g.common, g.right)
            axes.bar(places, values, 0.36, color=COLORS[i], label=f"correlation {c:g}")
        axes.set_xticks(range(len(names)), names)
        axes.set(ylabel="share of answers", ylim=(0, 1))
        axes.legend()
        return drawing(
            figure,
            "Bars for two worlds: where names tell something, most answers about strangers are the "
            "home of the name, and many are right; where they tell nothing, few are.",
            name="fallback",
        )
