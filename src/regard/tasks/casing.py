"""Upper and lower case: «<U> I am A student» → «I AM A STUDENT».

The easiest task that needs every character: each character of the answer is the one at the same
position of the text, in the case that the task token at either end of the text requests.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Literal

from regard.config import Positive
from regard.errors import UserError
from regard.tasks import names
from regard.tasks.examples import Example
from regard.tasks.rng import between, choice, generator, index
from regard.tasks.rows import Rows
from regard.tasks.split import Answers, Split, TextTaskConfig, cut, draw_distinct
from regard.tasks.tables import TableConfig
from regard.text.corpus import Document, read_corpus
from regard.text.files import content_suffix

Place = Literal["first", "last"]
"""Position of the task token: before the text, or after it."""

CASES = {"<U>": str.upper, "<L>": str.lower}
"""Task token → case of the answer."""

_WORDS = [*names.FIRST_NAMES, *names.LAST_NAMES, *chain(*names.FACTS.values())]


class CasingConfig(TextTaskConfig, frozen=True, tag_field="kind", tag="casing"):
    """«<U> I am A student» → «I AM A STUDENT», and «<L> …» → «i am a student»."""

    shortest: Positive = 8
    """Smallest number of characters of a text, without the task token."""
    longest: Positive = 40
    """Largest number of characters of a text."""
    place: Place = "first"
    """Position of the task token, before or after the text."""

    def __post_init__(self) -> None:
        if self.shortest > self.longest:
            raise ValueError(
                f"shortest = {self.shortest} is more than longest = {self.longest}: swap them"
            )

    def make(self, seed: int) -> Split:
        """Make texts of known words and random letters, in mixed case.

        Raises:
            UserError: there are fewer different texts.
        """

        def pair(draw: Random) -> tuple[str, str]:
            token = choice(draw, list(CASES))
            return _pair(token, _text(draw, self.shortest, self.longest), self.place)

        draw = generator(self.seed, seed, "casing")
        pairs = draw_distinct("casing", pair, draw, self.training + self.test)
        return cut("casing", pairs, self.training)

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        def copied(text: str) -> str:
            for token in CASES:
                text = text.removeprefix(f"{token} ").removesuffix(f" {token}")
            return text

        return {"the text as it is": [copied(q.text) for q in test]}

    def read(self, path: Path, table: TableConfig, *, label_required: bool = True) -> Rows:
        if content_suffix(path) == ".txt":
            return Rows(read_cases(path, self.place), (), "text, in both cases")
        return super().read(path, table, label_required=label_required)


def read_cases(path: Path, place: Place = "first") -> list[Example]:
    """Read a text file as examples, with a warning about the characters that are left out.

    Raises:
        UserError: the file yields no example.
    """
    texts = read_corpus([path])
    if not (pairs := case_pairs(texts, place)):
        raise UserError(f"{path}: no character keeps its length in the other case; add a text")
    if uneven := uneven_characters(texts):
        listed = ", ".join(f"{character} ({n})" for character, n in uneven.most_common())
        warnings.warn(
            f"{path}: left out characters whose other case is longer: {listed}", stacklevel=2
        )
    return pairs


def case_pairs(texts: Sequence[Document], place: Place = "first") -> list[Example]:
    """Return each of a user's texts in both cases, without the characters of `uneven_characters`.

    Texts that are empty without them are left out.
    """
    examples = list[Example]()
    for document in texts:
        text = "".join(filter(_is_even, document.text))
        if text.strip():
            pairs = [_pair(token, text, place) for token in CASES]
            examples += [Example(text=t, answer=a, where=document.where) for t, a in pairs]
    return examples


def uneven_characters(texts: Sequence[Document]) -> Counter[str]:
    """Count the characters that become several in the other case (ß, İ, ŉ, …).

    An answer with them would be longer than its text; `case_pairs` leaves them out.
    """
    counts = Counter(character for document in texts for character in document.text)
    return Counter({c: n for c, n in counts.items() if not _is_even(c)})


def _is_even(character: str) -> bool:
    return len(character.upper()) == len(character.lower()) == 1


def _pair(token: str, text: str, place: Place) -> tuple[str, str]:
    asked = f"{token} {text}" if place == "first" else f"{text} {token}"
    return asked, CASES[token](text)


def _text(draw: Random, shortest: int, longest: int) -> str:
    """Draw words, cut off at a length that is uniform in shortest..longest."""
    length, text = between(draw, shortest, longest), ""
    while len(text) < length:
        text += _word(draw) + " "
    text = text[:length]
    return text[:-1] + choice(draw, ascii_lowercase) if text.endswith(" ") else text


def _word(draw: Random) -> str:
    """Draw a known word or random letters; the probability of capitals is drawn for each word."""
    letters = (choice(draw, ascii_lowercase) for _ in range(between(draw, 1, 10)))
    word = choice(draw, _WORDS) if index(draw, 2) else "".join(letters)
    capitals = draw.random()
    return "".join(c.upper() if draw.random() < capitals else c.lower() for c in word)
