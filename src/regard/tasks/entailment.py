"""Entailment: a statement follows from a text, contradicts it, or neither.

The three labels of Bowman et al. (2015), in a world so small that they are certain: everybody has
one birthplace, one profession, one subject and one hobby. Each statement occurs with three texts,
one for each label, so the statement alone doesn't predict the label, as it does in human-written
data (Gururangan et al., 2018). A neutral text lacks the fact, or states it about somebody else.
Facts about a person are drawn anew for each example, so they can't be memorized. Test people aren't
in training.
"""

from itertools import product
from math import ceil
from pathlib import Path
from random import Random

from regard.tasks import names
from regard.tasks.examples import Example
from regard.tasks.labels import LabelTaskConfig, read_text_pairs, require_second
from regard.tasks.rng import between, choice, generator, index, sample, shuffled
from regard.tasks.rows import Rows
from regard.tasks.split import Split, numbered
from regard.tasks.world import tell

VALUES = {kind: values[:8] for kind, values in names.FACTS.items()}
"""Possible facts about a person.

Few values, so that each pair of equal or different values occurs often.
"""


class EntailmentConfig(LabelTaskConfig, frozen=True, tag_field="kind", tag="entailment"):
    """A text and a statement → «follows», «contradicts» or «unknown»."""

    def make(self, seed: int) -> Split:
        """Make texts of one to three sentences with statements, a third with each label."""
        everyone = [
            f"{first} {last}" for first, last in product(names.FIRST_NAMES, names.LAST_NAMES)
        ]
        people = shuffled(generator(self.seed, "entailment"), everyone)
        new = len(people) // 8
        draw = generator(self.seed, seed, "entailment")
        training = _examples(draw, people[new:], self.training)
        test = _examples(draw, people[:new], self.test)
        return numbered("entailment", [*training, *test], self.training)

    def read_lines(self, path: Path) -> Rows:
        return read_text_pairs(path)

    def check(self, example: Example) -> None:
        require_second(example)


def _examples(draw: Random, people: list[str], n: int) -> list[Example]:
    """Make examples about each person in turn."""
    made = [e for i in range(ceil(n / 3)) for e in _three(draw, people, i % len(people))]
    return shuffled(draw, made[:n])


def _three(draw: Random, people: list[str], subject: int) -> list[Example]:
    """Make a statement about a person, with a text for each label."""
    person, stranger = people[subject], choice(draw, [*people[:subject], *people[subject + 1 :]])
    asked = choice(draw, list(VALUES))
    value, other = sample(draw, VALUES[asked], 2)
    silent = _text(draw, person, asked, {})
    of_another = _text(draw, stranger, asked, {asked: value})
    texts = {
        "follows": _text(draw, person, asked, {asked: value}),
        "contradicts": _text(draw, person, asked, {asked: other}),
        "unknown": silent if index(draw, 2) else of_another,
    }
    statement = tell(draw, person, {asked: value})[asked]
    return [Example(text=text, second=statement, answer=label) for label, text in texts.items()]


def _text(draw: Random, person: str, asked: str, told: dict[str, str]) -> str:
    """Return one to three sentences about a person; the fact `asked` only if it is in `told`."""
    kinds = sample(
        draw, [kind for kind in VALUES if kind != asked], between(draw, 1, 3) - len(told)
    )
    facts = told | {kind: choice(draw, VALUES[kind]) for kind in kinds}
    return " ".join(tell(draw, person, facts).values())
