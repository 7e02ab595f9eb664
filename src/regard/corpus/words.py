"""Words of a text, normalized as in the index, and the sentence of each."""

import re
from typing import NamedTuple

from regard.corpus.index import compose, fold

_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Sentence(NamedTuple):
    """A sentence of a document."""

    text: str
    """In Unicode's form NFKC."""
    offset: int
    """Characters of the document before it."""


class Token(NamedTuple):
    """A word or a punctuation mark of a sentence."""

    word: str
    """Normalized: NFKC, case-folded."""
    start: int
    """Place in the sentence, in characters."""
    end: int
    sentence: int
    """Number of the sentence in the document."""


def split_sentences(document: str) -> list[Sentence]:
    """Return the sentences of a document: each ends with a full stop, «!» or «?» and a space.

    Abbreviations end sentences too.
    """
    starts = [0, *(found.end() for found in _SENTENCE_END.finditer(document))]
    ends = [*(found.start() for found in _SENTENCE_END.finditer(document)), len(document)]
    return [Sentence(compose(document[a:b]), a) for a, b in zip(starts, ends, strict=True)]


def tokenize(sentences: list[Sentence]) -> list[Token]:
    """Return words and punctuation marks of sentences."""
    return [
        Token(fold(found.group()), found.start(), found.end(), number)
        for number, sentence in enumerate(sentences)
        for found in _TOKEN.finditer(sentence.text)
    ]


def fold_words(text: str) -> list[str]:
    """Return words and punctuation marks of a text, normalized."""
    return [fold(word) for word in _TOKEN.findall(compose(text))]
