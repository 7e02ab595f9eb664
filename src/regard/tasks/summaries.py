"""Summaries: an article about a person → «Ada Finch, a baker born in Leeds.»

The article states all facts about the person, several times and in random order, among sentences
about other people and irrelevant ones. The summary is one sentence in a wording that articles never
use, so extracting sentences, such as the first ones, isn't enough. Test people are in no training
article.
"""

import re
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Annotated

from msgspec import Meta

from regard.config import Count, Positive
from regard.metrics import rouge
from regard.tasks.examples import Example
from regard.tasks.people import PeopleTaskConfig, split_by_people
from regard.tasks.rng import choice, sample, shuffled
from regard.tasks.split import Answers, Scores, Split, exact_matches
from regard.tasks.world import Person, tell

FILLER = (
    "The archive was closed for most of that year.",
    "Nobody remembers the exact date.",
    "Little else is known about those days.",
    "The letters were found in an attic.",
    "Winters were long and the roads were bad.",
    "Much of this was told by neighbours.",
    "The newspapers of the time say no more.",
    "A photograph shows a crowd in front of the town hall.",
    "The rest of the story is lost.",
    "Some of it may never have happened.",
    "It rained on the day of the festival.",
    "The records were copied by hand.",
)
"""Irrelevant sentences."""


class SummariesConfig(PeopleTaskConfig, frozen=True, tag_field="kind", tag="summaries"):
    """An article about a person → «Ada Finch, a baker born in Leeds.»"""

    tellings: Positive = 2
    """Number of times that an article states each fact, possibly in other words."""
    filler: Annotated[int, Meta(ge=0, le=12)] = 3
    """Number of irrelevant sentences."""
    others: Count = 2
    """Number of sentences about other people."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest = min(self.people, self.test)
        if self.others >= fewest:
            raise ValueError(
                f"others = {self.others} other people per article need at least one more "
                f"person, and people or test is only {fewest}: choose fewer others"
            )

    def make(self, seed: int) -> Split:
        """Make articles and their summaries; in training, about each person in turn."""
        return split_by_people(self, seed, partial(_example, self))

    def score(self, answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
        return rouge(answered, right, seed=seed) | exact_matches(answered, right)

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        return {f"lead-{k}": [lead(q.text, k) for q in test] for k in (1, 2, 3)}


def lead(text: str, k: int) -> str:
    """Return the first k sentences, a strong baseline on news (See et al., 2017)."""
    return " ".join(re.split(r"(?<=[.!?])\s+", text.strip())[:k])


def _example(
    config: SummariesConfig, draw: Random, people: Sequence[Person], subject: int
) -> tuple[str, str]:
    """Draw an article about a person, and its summary."""
    person = people[subject]
    others = sample(draw, [*people[:subject], *people[subject + 1 :]], config.others)
    sentences = [sentence for _ in range(config.tellings) for sentence in _told(draw, person)]
    sentences += [choice(draw, _told(draw, other)) for other in others]
    sentences += sample(draw, FILLER, config.filler)
    return " ".join(shuffled(draw, list(dict.fromkeys(sentences)))), _summary(person)


def _told(draw: Random, person: Person) -> list[str]:
    return list(tell(draw, person.name, person.facts).values())


def _summary(person: Person) -> str:
    profession = person.facts["profession"]
    article = "an" if profession[0] in "aeiou" else "a"
    return f"{person.name}, {article} {profession} born in {person.place}."
