"""Tagging: which words of a text name a person, a place or a profession?

People and places share one set of names: «Marlow is the birthplace of Rigby» in one text, «Rigby is
a well known tailor» in another. A name is therefore no evidence for its tag; only the words before
it («the letters of Marlow») or after it are. No name of the test is in training, first names
included.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from regard.errors import UserError
from regard.metrics import tag_accuracy, tag_macro_f1
from regard.tasks import names
from regard.tasks.examples import Example
from regard.tasks.rng import choice, generator, index, sample, shuffled
from regard.tasks.split import (
    Answers,
    Scores,
    Split,
    TextTaskConfig,
    cut,
    draw_distinct,
    exact_matches,
)
from regard.tasks.world import tell

MENTIONS = {
    "person": (
        "The letters of {name} were found in an attic.",
        "Nobody but {name} remembers the exact date.",
        "{name} had long letters copied by hand.",
        "Much of this was told by {name}.",
    ),
    "place": (
        "The archive of {name} was closed for most of that year.",
        "Nobody in {name} remembers the exact date.",
        "{name} had long winters and bad roads.",
        "A photograph shows a crowd in {name}.",
    ),
}
"""Tag → sentences that name one person or place."""


class TaggingConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="tagging"):
    """«Ada Marlow comes from Rigby.» → «person person other other place»"""

    def make(self, seed: int) -> Split:
        """Make texts of two or three sentences, and a tag for each word."""
        stock = generator(self.seed, "tagging")
        first, either = shuffled(stock, names.FIRST_NAMES), shuffled(stock, _STOCK)
        known = _Names(first[len(first) // 5 :], either[len(either) // 5 :])
        new = _Names(first[: len(first) // 5], either[: len(either) // 5])
        draw = generator(self.seed, seed, "tagging")
        training = draw_distinct("tagging", lambda d: _example(d, known), draw, self.training)
        test = draw_distinct("tagging", lambda d: _example(d, new), draw, self.test)
        return cut("tagging", [*training, *test], self.training)

    def score(self, answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
        said, true = ([text.split() for text in texts] for texts in (answered, right))
        return {
            "accuracy": tag_accuracy(said, true, seed=seed),
            "macro F1": tag_macro_f1(said, true, seed=seed),
            **exact_matches([" ".join(tags) for tags in said], [" ".join(tags) for tags in true]),
        }

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        """Return two baselines without context: the commonest tag overall, and of each word.

        Words absent from training get the commonest tag overall.
        """
        of_word = defaultdict[str, Counter[str]](Counter)
        for question in training:
            for word, tag in zip(question.text.split(), tags_of(question), strict=True):
                of_word[bare(word)][tag] += 1
        majority = _commonest(sum(of_word.values(), Counter()))
        guess = {word: _commonest(tags) for word, tags in of_word.items()}
        return {
            "majority": _tagged(test, {}, majority),
            "each word's commonest": _tagged(test, guess, majority),
        }

    def check(self, example: Example) -> None:
        if example.answer is not None:
            tags_of(example)


class _Names(NamedTuple):
    """Names of people and places."""

    first: list[str]
    either: list[str]
    """Names of both people (last names) and places."""


_STOCK = [*names.LAST_NAMES, *names.PLACES]


def _example(draw: Random, stock: _Names) -> tuple[str, str]:
    """Draw facts about a person, and a sentence that names another person or a place."""
    surname, place, other = sample(draw, stock.either, 3)
    person = surname if index(draw, 2) else f"{choice(draw, stock.first)} {surname}"
    facts = {
        "place": place,
        "profession": choice(draw, names.PROFESSIONS),
        "subject": choice(draw, names.SUBJECTS),
    }
    told = list(tell(draw, person, facts).values())[: 1 + index(draw, 2)]
    kind = choice(draw, list(MENTIONS))
    sentences = [*told, choice(draw, MENTIONS[kind]).format(name=other)]
    text = " ".join(shuffled(draw, sentences))
    meant = dict.fromkeys(person.split(), "person") | {place: "place", other: kind}
    meant[facts["profession"]] = "profession"
    return text, " ".join(meant.get(bare(word), "other") for word in text.split())


def bare(word: str) -> str:
    """Return a word without surrounding punctuation."""
    return re.sub(r"^\W+|\W+$", "", word)


def tags_of(question: Example) -> list[str]:
    """Return the tag of each word; words and tags are separated by spaces.

    Raises:
        UserError: the numbers of words and tags differ.
    """
    words, tags = question.text.split(), (question.answer or "").split()
    if len(tags) != len(words):
        raise UserError(
            f"{question.place}: has {len(words)} words and {len(tags)} tags; after the tab, "
            "write a tag for each word, separated by spaces"
        )
    return tags


def _tagged(questions: Sequence[Example], guess: Mapping[str, str], otherwise: str) -> list[str]:
    return [
        " ".join(guess.get(bare(word), otherwise) for word in question.text.split())
        for question in questions
    ]


def _commonest(tags: Counter[str]) -> str:
    """Return the commonest tag; ties go to the first in alphabetical order."""
    return min(tags, key=lambda tag: (-tags[tag], tag))
