"""Retrieval: «Who comes from Ravaford and bakes bread?» → the biography of that person.

Questions don't name the person. They give the place verbatim, and the profession in words that no
biography contains: a baker «bakes bread». Place and profession together identify one person, but
several people were born in each place. Word overlap (`tf_idf`) therefore finds the place and
guesses among the people born there; the words for a profession must be learned in training, from
other people. Test people are in no question or biography of training.
"""

from collections.abc import Sequence
from random import Random

from regard.tasks.people import PeopleTaskConfig, split_by_people
from regard.tasks.rng import choice
from regard.tasks.split import Split
from regard.tasks.world import Person, tell

WORDINGS = (
    "Who was born in {place} and {trade}?",
    "Who comes from {place} and {trade}?",
    "Which native of {place} {trade}?",
)

TRADES = {
    "baker": "bakes bread",
    "botanist": "knows all plants",
    "carpenter": "makes tables and chairs",
    "chemist": "mixes acids in a laboratory",
    "clockmaker": "repairs watches",
    "composer": "writes symphonies",
    "dentist": "pulls teeth",
    "editor": "corrects manuscripts",
    "engineer": "designs bridges",
    "farmer": "keeps cows",
    "geologist": "collects stones",
    "glazier": "replaces windows",
    "historian": "describes past centuries",
    "judge": "decides in court",
    "librarian": "lends books",
    "miller": "grinds corn",
    "nurse": "looks after patients",
    "painter": "sells portraits in oil",
    "pilot": "flies aeroplanes",
    "potter": "shapes clay",
    "sailor": "crosses the sea",
    "sculptor": "carves marble",
    "surgeon": "operates on hearts",
    "tailor": "sews suits",
    "teacher": "explains things to children",
    "translator": "puts foreign novels into English",
    "weaver": "makes cloth on a loom",
    "zoologist": "observes animals",
}
"""Profession → its activity, sharing only function words with biographies."""


class RetrievalConfig(PeopleTaskConfig, frozen=True, tag_field="kind", tag="retrieval"):
    """«Who comes from Leeds and bakes bread?» → the biography of that person.

    Scored by ranks where documents are embedded, or else by exact match.
    """

    def make(self, seed: int) -> Split:
        """Make questions and the biographies that answer them; in training, each person in turn.

        A person's biographies differ in order and wording; in the test, everyone has one.
        """
        return split_by_people(self, seed, _example)


def _example(draw: Random, people: Sequence[Person], subject: int) -> tuple[str, str]:
    """Draw a question about a person, and a biography."""
    person = people[subject]
    trade = TRADES[person.facts["profession"]]
    question = choice(draw, WORDINGS).format(place=person.place, trade=trade)
    return question, f"{person.name}. {' '.join(tell(draw, person.name, person.facts).values())}"
