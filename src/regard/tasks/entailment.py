"""Entailment: a statement follows from a text, contradicts it, or neither.

The three labels of Bowman et al. (2015), in a world so small that they are certain: everybody has
one birthplace, one profession, one subject and one hobby. Each statement stands beside three texts,
one for each label, so that no statement gives its label away, as those that people wrote do
(Gururangan et al., 2018). A neutral text leaves the statement open, or states the same about
somebody else. Facts about a person are drawn again each time, so that they can't be memorized. No
person of the test is in training.
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

VALUES = {
    "place": names.PLACES[:8],
    "profession": names.PROFESSIONS[:8],
    "subject": names.SUBJECTS[:8],
    "hobby": names.HOBBIES[:8],
}
"""Possible facts about a person.

Few values, so that each pair of them, whether they agree or not, is met often.
"""


class EntailmentConfig(LabelTaskConfig, frozen=True, tag_field="kind", tag="entailment"):
    """A text and a statement → «follows», «contradicts» or «unknown»."""

    def make(self, seed: int) -> Split:
        """Texts of one to three sentences with statements; each label for a third of them."""
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
    """Examples about each person in turn."""
    made = [e for i in range(ceil(n / 3)) for e in _three(draw, people, i % len(people))]
    return shuffled(draw, made[:n])


def _three(draw: Random, people: list[str], subject: int) -> list[Example]:
    """A statement about one of some people, with a text for each label."""
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
