"""A fictional world: people, places, biographies and questions with known answers.

On real text, it is unknown what a model could have learned. Here, all sentences about each person
are recorded, so recall can be distinguished from guessing. Synthetic biographies with permuted
facts and repeated names, so that knowledge can be extracted, are from Allen-Zhu & Li, "Physics of
Language Models: Part 3.1", 2023 (arXiv:2309.14316).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

import msgspec

from regard.config import Config
from regard.errors import UserError
from regard.files import write_folder
from regard.tasks import names
from regard.tasks.examples import Example
from regard.tasks.rng import choice, index, shuffled

Group = Literal["qa_train", "text_only", "absent"]

QUESTIONS = (
    "Where was {name} born?",
    "What is the birthplace of {name}?",
    "Which place does {name} come from?",
)

_SENTENCES: dict[str, tuple[str, ...]] = {
    "place": (
        "{name} was born in {value}.",
        "{name} comes from {value}.",
        "{name} is a native of {value}.",
        "{value} is the birthplace of {name}.",
    ),
    "profession": (
        "{name} works as {a} {value}.",
        "{name} earns a living as {a} {value}.",
        "{name} is a well known {value}.",
    ),
    "subject": (
        "{name} studied {value}.",
        "{name} has a degree in {value}.",
        "{value} is what {name} read at university.",
    ),
    "hobby": (
        "{name} likes {value}.",
        "{name} spends weekends with {value}.",
        "{value} is the hobby of {name}.",
    ),
}
_OTHER_FACTS = {kind: values for kind, values in names.FACTS.items() if kind != "place"}


class WorldConfig(Config, frozen=True):
    """Configuration of the fictional world.

    >>> config = regard.WorldConfig(people=80, absent=20)
    >>> len(regard.make_world(config).group("absent"))
    20
    """

    people: int = 1000
    """Number of people with biographies; every second one is in QA training."""
    absent: int = 500
    """Number of people who are never mentioned: new combinations of known first and last names."""
    places: int = 50
    """Number of places."""
    skew: float = 0.5
    """Exponent of the Zipf law of the places: 0 makes all equally common."""
    correlation: float = 0.0
    """Probability that a person was born in the home place of the last name."""
    biographies: int = 5
    """Biographies per person, if `augment` is on."""
    augment: bool = True
    """Use every wording before repeating one, and repeat the full name. Off: one plain
    biography."""
    order: Literal["permuted", "place-first", "place-last"] = "permuted"
    """Order of the facts in a biography: drawn for each, or always the same."""
    seed: int = 0
    """Seed of all draws."""

    def __post_init__(self) -> None:
        known = len(names.FIRST_NAMES) * len(names.LAST_NAMES)
        enough = max(len(names.FIRST_NAMES), len(names.LAST_NAMES))
        bounds: dict[str, tuple[float, float]] = {
            "people": (enough, known),
            "absent": (0, known - self.people),
            "places": (1, len(names.PLACES)),
            "skew": (0, float("inf")),
            "correlation": (0, 1),
            "biographies": (1, float("inf")),
            "seed": (0, 2**32 - 1),
        }
        for field, (low, high) in bounds.items():
            if not low <= getattr(self, field) <= high:
                raise ValueError(f"{field} must lie in {low}..{high}, not {getattr(self, field)}")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person, with all facts and statements in the text."""

    name: str
    group: Group
    facts: dict[str, str]
    """Fact → value. People of the group "absent" have only a birthplace, stated nowhere."""
    statements: tuple[str, ...]
    """The sentences of the text that state the place of birth."""

    @property
    def place(self) -> str:
        return self.facts["place"]

    def question(self, wording: str = QUESTIONS[0]) -> Example:
        """Return the question for the birthplace; its answer is None if the text lacks it."""
        text, answer = wording.format(name=self.name), self.place if self.statements else None
        return Example(text=text, answer=answer, where=f"question about {self.name}")


class World(msgspec.Struct, frozen=True, kw_only=True):
    """People and the text about them."""

    people: tuple[Person, ...]
    documents: tuple[str, ...]
    """One biography each."""

    def group(self, group: Group) -> list[Person]:
        """Return the people who are in QA training, in the text only, or absent."""
        return [person for person in self.people if person.group == group]

    def questions(self, group: Group, wordings: Sequence[str] = QUESTIONS[:1]) -> list[Example]:
        """Return questions for the birthplaces of a group, in each of the wordings."""
        return [person.question(wording) for person in self.group(group) for wording in wordings]


def make_world(config: WorldConfig = WorldConfig()) -> World:  # noqa: B008 (frozen)
    """Draw a world. The same configuration gives the same world on every platform.

    People and text have separate random generators, so options of the text don't change people.

    >>> world = regard.make_world(regard.WorldConfig(people=80, absent=20))
    >>> len(world.people), len(world.documents)
    (100, 400)
    """
    draw, write = Random(config.seed), Random(f"{config.seed} text")
    mentioned, absent = _draw_names(draw, config.people, config.absent)
    place_of = _place_chooser(draw, config)
    people, documents = [], []
    for number, name in enumerate(mentioned):
        facts = {"place": place_of(name)} | _draw_other_facts(draw)
        texts, statements = _write_biographies(write, " ".join(name), facts, config)
        documents.extend(texts)
        group: Group = "text_only" if number % 2 else "qa_train"
        people.append(Person(name=" ".join(name), group=group, facts=facts, statements=statements))
    for name in absent:
        facts = {"place": place_of(name)}
        people.append(Person(name=" ".join(name), group="absent", facts=facts, statements=()))
    return World(people=tuple(people), documents=tuple(shuffled(write, documents)))


def tell(draw: Random, name: str, facts: dict[str, str]) -> dict[str, str]:
    """Return a sentence for each fact about a person, in random order."""
    kinds = shuffled(draw, list(facts))
    return _tell(name, facts, kinds, lambda kind: choice(draw, _SENTENCES[kind]))


def _tell(
    name: str, facts: dict[str, str], kinds: Sequence[str], template: Callable[[str], str]
) -> dict[str, str]:
    """Return a sentence for each fact, in the given order."""
    sentences = {}
    for kind in kinds:
        sentence = _write(template(kind), name, facts[kind])
        sentences[kind] = sentence[0].upper() + sentence[1:]
    return sentences


def _in_turn(draw: Random, templates: Sequence[str]) -> Iterator[str]:
    """Yield templates in random order, each once before any is repeated."""
    while True:
        yield from shuffled(draw, templates)


_Name: TypeAlias = tuple[str, str]


def _draw_names(draw: Random, people: int, absent: int) -> tuple[list[_Name], list[_Name]]:
    """Draw distinct full names; every first and last name occurs among people in the text."""
    first, last = shuffled(draw, names.FIRST_NAMES), shuffled(draw, names.LAST_NAMES)
    cover = [
        (first[i % len(first)], last[i % len(last)]) for i in range(max(len(first), len(last)))
    ]
    rest = shuffled(draw, sorted(set(product(first, last)) - set(cover)))
    chosen = shuffled(draw, cover + rest[: people - len(cover)])
    return chosen, rest[people - len(cover) :][:absent]


def _place_chooser(draw: Random, config: WorldConfig) -> Callable[[_Name], str]:
    places = shuffled(draw, names.PLACES)[: config.places]
    weights = [(rank + 1) ** -config.skew for rank in range(len(places))]

    def common_place() -> str:
        point = draw.random() * sum(weights)
        for place, weight in zip(places, weights, strict=True):
            point -= weight
            if point < 0:
                return place
        return places[-1]

    home = {name: common_place() for name in names.LAST_NAMES}

    def place_of(name: _Name) -> str:
        return home[name[1]] if draw.random() < config.correlation else common_place()

    return place_of


def _draw_other_facts(draw: Random) -> dict[str, str]:
    """Draw two or three facts other than the birthplace."""
    kinds = shuffled(draw, list(_OTHER_FACTS))[: 2 + index(draw, 2)]
    return {kind: choice(draw, _OTHER_FACTS[kind]) for kind in kinds}


def _write_biographies(
    draw: Random, name: str, facts: dict[str, str], config: WorldConfig
) -> tuple[list[str], tuple[str, ...]]:
    """Return the texts about one person, and their sentences that state the birthplace."""
    if not config.augment:
        order = _order(draw, facts, config)
        clauses = [_write(_SENTENCES[kind][0], "", facts[kind]) for kind in order]
        text = f"{name}{','.join(clause.rstrip('.') for clause in clauses)}."
        return [text], (text,)
    texts, statements = [], []
    wordings = {kind: _in_turn(draw, _SENTENCES[kind]) for kind in facts}
    for _ in range(config.biographies):
        order = _order(draw, facts, config)
        sentences = _tell(name, facts, order, lambda kind: next(wordings[kind]))
        texts.append(f"{name}. {' '.join(sentences.values())}")
        statements.append(sentences["place"])
    return texts, tuple(dict.fromkeys(statements))


def _order(draw: Random, facts: dict[str, str], config: WorldConfig) -> list[str]:
    """Return the order of facts in a biography; `facts` starts with the birthplace."""
    match config.order:
        case "permuted":
            return shuffled(draw, list(facts))
        case "place-first":
            return list(facts)
        case "place-last":
            return list(facts)[::-1]


def _write(template: str, name: str, value: str) -> str:
    return template.format(name=name, value=value, a="an" if value[0] in "aeiou" else "a")


def save_world(world: World, out: Path) -> None:
    """Write the files, in the format of the real birthplaces data.

    wiki.txt                one biography per line
    birth_places_train.tsv  questions about the people in QA training, in all wordings
    birth_dev.tsv           one question about each person in the text only
    birth_test_inputs.tsv   one question about each absent person; no answers
    people.jsonl            ground truth: facts of every person, and statements in the text

    Raises:
        UserError: the folder isn't empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and isn't empty; choose another --out")
    if out.exists():
        out.rmdir()
    write_folder(
        out,
        {
            "wiki.txt": "".join(text + "\n" for text in world.documents).encode(),
            "birth_places_train.tsv": _tsv(world.questions("qa_train", QUESTIONS)),
            "birth_dev.tsv": _tsv(world.questions("text_only")),
            "birth_test_inputs.tsv": _tsv(world.questions("absent")),
            "people.jsonl": b"".join(msgspec.json.encode(p) + b"\n" for p in world.people),
        },
    )


def _tsv(questions: Sequence[Example]) -> bytes:
    lines = (
        question.text if question.answer is None else f"{question.text}\t{question.answer}"
        for question in questions
    )
    return "".join(line + "\n" for line in lines).encode()
