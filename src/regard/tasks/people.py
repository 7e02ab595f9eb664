"""People of the fictional world, unique by place and profession."""

from collections.abc import Callable
from random import Random

from regard.config import Positive
from regard.tasks import names
from regard.tasks.rng import generator
from regard.tasks.split import Split, TextTaskConfig, cut
from regard.tasks.world import Person, WorldConfig, make_world

MOST_PEOPLE = 2000
"""Largest number of people, out of 5600 names, such that no two share both place and
profession."""


class PeopleTaskConfig(TextTaskConfig, frozen=True):
    """Base of tasks about people of the fictional world."""

    people: Positive = 1000
    """Number of people in training; test examples are about others."""

    def __post_init__(self) -> None:
        if self.people + self.test > MOST_PEOPLE:
            raise ValueError(
                f"people + test = {self.people + self.test}, but the fictional world has "
                f"{MOST_PEOPLE}: choose fewer"
            )
        if self.training < self.people:
            raise ValueError(
                f"training = {self.training} leaves some of people = {self.people} without an "
                "example: choose more examples, or fewer people"
            )


def distinct_people(seed: int, n: int) -> list[Person]:
    """Return n people, no two of whom have both the same place and profession.

    `n` is at most MOST_PEOPLE, which can always be found.
    """
    assert n <= MOST_PEOPLE
    everyone = WorldConfig(
        people=len(names.FIRST_NAMES) * len(names.LAST_NAMES),
        absent=0,
        places=len(names.PLACES),
        skew=0,
        biographies=1,
        seed=seed,
    )
    found: dict[tuple[str, str], Person] = {}
    for person in make_world(everyone).people:
        if "profession" in person.facts:
            found.setdefault((person.place, person.facts["profession"]), person)
    return list(found.values())[:n]


def split_by_people(
    config: PeopleTaskConfig,
    seed: int,
    example: Callable[[Random, list[Person], int], tuple[str, str]],
) -> Split:
    """Make examples about people: in training, each in turn; in the test, about other people.

    `example` draws text and answer about a person, given the people and the person's index.
    """
    task = str(config.__struct_config__.tag)
    people = distinct_people(config.seed, config.people + config.test)
    known, new = people[: config.people], people[config.people :]
    draw = generator(config.seed, seed, task)
    pairs = [example(draw, known, i % len(known)) for i in range(config.training)]
    pairs += [example(draw, new, i) for i in range(config.test)]
    return cut(task, pairs, config.training)
